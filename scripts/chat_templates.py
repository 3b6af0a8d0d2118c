#!/usr/bin/env python3
"""Writes what `transformers` makes of conversations by chat templates in the styles of published models.

    python3 -m venv DIR && DIR/bin/pip install transformers==5.24.0 jinja2==3.1.6
    DIR/bin/python scripts/chat_templates.py crates/hushed-model/tests/golden

`chat.json` has, for every template and conversation, the text and its token ids (of the tiny tokenizers beside it, with `added` special
tokens), or that the template raises. The templates are written for this test, in the ways of those that models come with.
"""

import json
import pathlib
import sys

import jinja2
import transformers
from tokenizers import AddedToken

CHATML = """{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}"
    "{% endfor %}"
)
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# Blocks, macros, namespaces, loop controls, slices and string methods, with white space that trimming decides about.
MIXED = """{#- a comment -#}
{%- macro turn(role, text) -%}
<|im_start|>{{ role | upper }}: {{ text.split('</think>')[-1].lstrip('\\n') }}<|im_end|>
{% endmacro -%}
{%- set ns = namespace(system='', count=0) %}
{%- for message in messages if message.role == 'system' %}
    {%- set ns.system = ns.system ~ message.content | trim ~ '; ' %}
{%- endfor %}
{% if ns.system %}
{{ turn('rules', ns.system[:-2]) }}
{%- endif %}
{% for message in messages %}
    {% if message.role == 'system' %}
        {% continue %}
    {% endif %}
    {% set ns.count = ns.count + 1 %}
{{ loop.index }}/{{ messages | length }} {{ turn(message['role'], message['content']) }}
    {% if loop.last and message.content.endswith('!') and tools is none %}
{{ message.role ~ ' said ' ~ ns.count }}
    {% endif %}
{% endfor %}
{{ (messages | map(attribute='role') | join(',')) }}{{ ' yes' if strftime_now is not defined or true }}
{% if add_generation_prompt is defined and add_generation_prompt %}<|im_start|>{% endif %}
"""
CONVERSATIONS = [
    [("user", "Hello world")],
    [("system", "Answer briefly."), ("user", "  What is 2 + 2?\n")],
    [("user", "Hi"), ("assistant", "Hello!"), ("user", "<think>a</think>\nZażółć gęślą jaźń 🙂 'quoted' & <b>bold</b>!")],
    [("system", "One."), ("system", "Two."), ("user", "three\n\n four"), ("assistant", ""), ("user", "five {{ six }} {% seven %}")],
    [("assistant", "I begin."), ("user", "no")],
]
GPT2 = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TEMPLATES = [
    ("chatml", "gpt2", CHATML, {"eos_token": "<|im_end|>"}),
    ("llama2", "llama", LLAMA2, {"bos_token": "<s>", "eos_token": "</s>"}),
    ("llama3", "gpt2", LLAMA3, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    ("mixed", "gpt2", MIXED, {}),
]


def main():
    out = pathlib.Path(sys.argv[1])
    cases = []
    for name, model, template, tokens in TEMPLATES:
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(out / "tiny" / model / "tokenizer.json"), **tokens)
        added = GPT2 if model == "gpt2" else []
        tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in added], special_tokens=True)
        ids = {token: tokenizer.convert_tokens_to_ids(token) for token in added}
        case = {"name": name, "tokenizer": model, "added": ids, "template": template, "tokens": tokens, "conversations": []}
        for conversation in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in conversation]
            expected = {"messages": messages}
            chat = dict(chat_template=template, add_generation_prompt=True)
            try:
                expected["text"] = tokenizer.apply_chat_template(messages, tokenize=False, **chat)
                expected["ids"] = list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **chat))
            except jinja2.exceptions.TemplateError as error:
                expected["raised"] = str(error)
            case["conversations"].append(expected)
        cases.append(case)
    (out / "chat.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
