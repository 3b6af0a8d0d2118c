#!/usr/bin/env python3
"""Writes what `transformers` renders by thirty chat templates in the styles of published models.

    python3 -m venv DIR && DIR/bin/pip install transformers==5.24.0 jinja2==3.1.6
    DIR/bin/python scripts/chat_styles.py crates/hushed-model/tests/golden/chat_styles.json

The templates are written for this test, in the ways of those that models come with: white space that trimming decides about, blocks that only
`transformers` knows, its `tojson` and `strftime_now` (at NOW), Python's methods and operators. Each is rendered by the very environment of
`transformers`. The engine of this project has to give the same bytes, or to refuse with the words that a template raises.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

#: 5 July 2025, 08:09:03, a Saturday.
NOW = 1751702943
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS = [
    [("user", "Hello world")],
    [("system", "Answer briefly."), ("user", "  What is 2 + 2?\n"), ("assistant", "4"), ("user", "And <b>'3' & \"4\"</b>?")],
    [("user", "Zażółć 🙂 \\ {{ x }} {% y %} 100%"), ("assistant", "<think>\nhm\n</think>\n\nok"), ("user", "\ttab\x07\u2028end")],
    [("assistant", "I begin."), ("user", "no")],
    [("system", "s"), ("user", "one"), ("user", "two")],
]
LOOP = "{% for message in messages %}"
END = "{% endfor %}"
ASK = "{% if add_generation_prompt %}"
ALTERNATE = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
TEMPLATES = {
    "chatml": LOOP + "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}" + END
    + ASK + "{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "chatml, indented": """{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = 'You are helpful.' -%}
    {%- set rest = messages -%}
{%- endif -%}
<|im_start|>system
{{ system }}<|im_end|>
{% for message in rest %}
    {% if message.role == 'user' or message.role == 'assistant' %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
""",
    "llama 2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE
    + "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama 3": "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
    "llama 3.1, with a date": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": "{{ bos_token }}" + LOOP + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% endif %}" + END,
    "mistral, with a system prompt before the last": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}{{ user_messages | length }}""",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + LOOP + ALTERNATE
    + "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}" + END + ASK + "{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma 3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "phi 3": LOOP + "{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}"
    "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}"
    "{% endif %}" + END + ASK + "{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "phi 4": LOOP + "{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endif %}" + END
    + ASK + "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "qwen 2.5, with tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen-like.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- for tool_call in message.tool_calls %}
            {{- '{"name": "' }}{{ tool_call.name }}{{ '", "arguments": ' }}{{ tool_call.arguments | tojson }}{{ '}' }}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen 3, backwards": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in message.content %}
                {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
                {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "smollm 3, marking what the model said": """{%- set today = strftime_now("%d %B %Y") -%}
{%- set system = messages[0].content if messages[0].role == "system" else "" -%}
{{- "<|im_start|>system\\n" -}}
{{- "## Metadata\\n\\n" -}}
{{- "Today Date: " ~ today ~ "\\n" -}}
{{- system.rstrip() -}}{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\\n"  + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\\n" }}
{%- endif -%}
""",
    "generation, in one line": LOOP + "{% if message.role == 'assistant' %}{%- generation -%} {{ message.content }} {%- endgeneration -%}"
    "{% else %}{{ message.role }}: {{ message.content }}\n{% endif %}" + END + "assistant:",
    "generation is a scope": "{% set x = 'out' %}{% generation %}{% set x = 'in' %}{{ x }}{% for m in messages %}{{ loop.index }}{% endfor %}{% endgeneration %}{{ x }}",
    "deepseek": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}"
    "{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}"
    "{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}"
    "{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
    "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}",
    "deepseek coder": "{% if not add_generation_prompt is defined %}\n{% set add_generation_prompt = false %}\n{% endif %}\n"
    "{%- set ns = namespace(found=false) -%}\n{%- for message in messages -%}\n    {%- if message['role'] == 'system' -%}\n"
    "        {%- set ns.found = true -%}\n    {%- endif -%}\n{%- endfor -%}\n{{bos_token}}{%- if not ns.found -%}\n"
    "{{'You are a programmer.\\n'}}\n{%- endif %}\n{%- for message in messages %}\n    {%- if message['role'] == 'system' %}\n"
    "{{ message['content'] }}\n    {%- else %}\n        {%- if message['role'] == 'user' %}\n{{'### Instruction:\\n' + message['content'] + '\\n'}}\n"
    "        {%- else %}\n{{'### Response:\\n' + message['content'] + '\\n<|EOT|>\\n'}}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n"
    "{% if add_generation_prompt %}\n{{'### Response:'}}\n{% endif %}",
    "command r": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are Command-like.' %}{% else %}"
    "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}"
    "{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}"
    "{% for message in loop_messages %}" + ALTERNATE + "{% set content = message['content'] %}{% if message['role'] == 'user' %}"
    "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}"
    "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    "tojson": LOOP + "{{ message | tojson }}\n" + END + "{{ {'a': [], 'b': {}, 'c': [1, 2.0, 1e22, 0.00001, -3, true, none], 'd': 'é<>&\\''} | tojson }}",
    "tojson, indented": "{{ messages | tojson(indent=4) }}\n{{ [] | tojson(indent=2) }}{{ {'b': 1, 'a': [[]]} | tojson(indent=2, sort_keys=true) }}",
    "tojson, by its options": LOOP + "{{ message.content | tojson(ensure_ascii=True) }}{{ message | tojson(separators=(',', ':')) }}" + END
    + "{{ [1, {'x': none}] | tojson(indent=0) }}{{ {1: 'a', none: 'c'} | tojson }}",
    "percent": LOOP + "{{ '%s: %s' % (message.role, message['content'] | trim) }}{{ \"%d%%|%5s|%-5s|%03d\" % (loop.index, 'a', 'b', 7) }}\n" + END
    + "{{ '%s' % messages|length }}{% if messages|length % 2 == 0 %} even{% endif %}",
    "dates": "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now(\"%A, %B %d, %-d %b %y %j %I %p %%\") }}|{{ strftime_now('') }}",
    "guarded date": "{%- if strftime_now is defined %}{% set d = strftime_now('%d %b %Y') %}{% else %}{% set d = '26 Jul 2024' %}{% endif %}{{ d }}\n"
    + LOOP + "{{ message.role }}: {{ message.content }}\n" + END,
    "loop controls": LOOP + "{% if message.role == 'system' %}{% continue %}{% endif %}{{ loop.index }}{{ message.content }}"
    "{% if loop.index > 2 %}{% break %}{% endif %}\n" + END,
    "macros and methods": """{%- macro turn(message, prefix='') -%}
{{ prefix }}{{ message.role | capitalize }}: {{ message['content'].strip().replace('o', '0').upper() }}
{%- endmacro -%}
{% for message in messages %}
{{ turn(message, prefix='> ' if loop.first else '') }}{{ ',' if not loop.last }}
{% endfor %}
{{ messages | map(attribute='role') | unique | join('/') }} {{ messages | rejectattr('role', 'equalto', 'system') | list | length }}""",
    "members": LOOP + "{% for k, v in message.items() %}{{ k }}={{ v }};{% endfor %}{{ message.get('name', 'nobody') }} {{ message.get('role') }} {{ 'x' in message }}\n" + END,
    "alpaca": "{% if messages[0].role == 'system' %}{{ messages[0].content ~ '\n\n' }}{% set messages = messages[1:] %}{% endif %}" + LOOP
    + "{% if message.role == 'user' %}### Instruction:\n{{ message.content | trim }}\n\n{% else %}### Response:\n{{ message.content | trim }}{{ eos_token }}\n\n{% endif %}"
    + END + ASK + "### Response:\n{% endif %}",
    "raw and comments": "{# {{ nothing }} {% generation %} #}{% raw %}{{ as it is }} {% generation %}{% endraw %}\n   {#- trimmed -#}   \n" + LOOP
    + "   {%+ if true %}{{ '{{' }} {{ message.content }} {{ \"}}\" }}{% endif +%}\n" + END,
}


def main():
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
    cases = []
    for name, source in TEMPLATES.items():
        template = _compile_jinja_template(source)
        template.globals["strftime_now"] = template.environment.globals["strftime_now"] = now.strftime
        case = {"name": name, "template": source, "tokens": TOKENS, "conversations": []}
        for conversation in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in conversation]
            expected = {"messages": messages}
            try:
                expected["text"] = template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **TOKENS)
            except jinja2.exceptions.TemplateError as error:
                expected["raised"] = str(error)
            case["conversations"].append(expected)
        cases.append(case)
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"now": NOW, "templates": cases}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
