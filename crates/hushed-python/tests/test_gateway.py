"""The gateway, as the clients that people have use it."""

import json
import pathlib
import re
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest

import hushed

openai = pytest.importorskip("openai", reason="openai needs Python 3.10")
huggingface_hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub needs Python 3.10")

#: A folder of a classifier.
GOLDEN_CLASSIFIER = pathlib.Path(__file__).resolve().parents[2] / "hushed-model/tests/golden/tiny/roberta-classifier"


class Gateway:
    """The command of the wheel, before a server of its own."""

    def __init__(self, folder, *options):
        self.server = hushed.serve(folder)
        arguments = ["--server", self.server.address, "--pin", self.server.pin, "--listen", "127.0.0.1:0", *options]
        program = [sys.executable, "-m", "hushed", "gateway", *arguments, "--json"]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["address"]

    def close(self):
        self.process.terminate()
        ended = self.process.wait(60)
        self.process.stdout.close()
        self.server.close()
        assert ended == 0

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def passes(self):
        return json.loads(self.get("/ledger"))["total"]["passes"]

    def openai(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", **options)


@pytest.fixture(scope="module")
def gateway(folder):
    gateway = Gateway(folder)
    yield gateway
    gateway.close()


def cosines(a, b):
    return hushed.SentenceEncoder.similarity_pairwise(a, b)


def short(published):
    """Four texts that are not too long, and their answers."""
    texts, answers = zip(*[case for case in published if len(case[0]) < 60][:4])
    assert len(texts) == 4
    return list(texts), answers


def test_openai_embeds(gateway, published):
    client = gateway.openai()
    (model,) = client.models.list().data
    texts, answers = short(published)
    got = client.embeddings.create(model=model.id, input=texts)
    assert cosines([e.embedding for e in got.data], answers).min() >= 0.9999
    assert got.usage.prompt_tokens == got.usage.total_tokens >= 3 * len(texts)
    plain = client.embeddings.create(model=model.id, input=texts[0], encoding_format="float")
    assert np.allclose(plain.data[0].embedding, got.data[0].embedding, atol=1e-7), "base64 and numbers are the same"


def test_hugging_face_embeds(gateway, published):
    client = huggingface_hub.InferenceClient(gateway.url)
    (text, answer), (other, _) = published[:2]
    assert cosines(client.feature_extraction(text), [answer]).min() >= 0.9999
    same, different = client.sentence_similarity(text, other_sentences=[text, other])
    assert same == pytest.approx(1, abs=1e-5) and different < 0.9999


def test_langchain_embeds(gateway, published):
    langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    way = dict(base_url=gateway.url + "/v1", api_key="none", model=gateway.openai().models.list().data[0].id)
    embeddings = langchain_openai.OpenAIEmbeddings(**way, check_embedding_ctx_length=False)
    texts, answers = short(published)
    assert cosines(embeddings.embed_documents(texts), answers).min() >= 0.9999
    assert cosines([embeddings.embed_query(texts[0])], answers[:1])[0] >= 0.9999


def test_llama_index_embeds(gateway, published):
    llama_index = pytest.importorskip("llama_index.embeddings.openai_like", reason="LlamaIndex is not installed")
    model = gateway.openai().models.list().data[0].id
    embedding = llama_index.OpenAILikeEmbedding(model_name=model, api_base=gateway.url + "/v1", api_key="none")
    texts, answers = short(published)
    assert cosines(embedding.get_text_embedding_batch(texts), answers).min() >= 0.9999


def test_what_outlasts_its_client_is_refused_and_nothing_runs(gateway):
    before = gateway.passes()
    client = gateway.openai(timeout=1)
    texts = [f"text {i} of a thousand, and no other is like it" for i in range(1000)]
    model = client.models.list().data[0].id
    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(model=model, input=texts)
    # "The first 3 of 1000", or on a slow machine "not even the first".
    assert caught.value.status_code == 413 and "would be ready" in caught.value.message
    assert gateway.passes() == before


def test_token_ids_and_models_of_others_are_refused_by_name(gateway):
    client = gateway.openai()
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model=client.models.list().data[0].id, input=[[1, 2, 3]])
    with pytest.raises(openai.NotFoundError, match="model"):
        client.embeddings.create(model="text-embedding-3-small", input="a")


def test_calls_at_once_share_passes(gateway):
    client, before = gateway.openai(), gateway.passes()
    model = client.models.list().data[0].id
    answers = [None] * 8

    def call(i):
        answers[i] = client.embeddings.create(model=model, input=f"call {i} of several")

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(answers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers) and 1 <= gateway.passes() - before < len(answers)


def test_retries_cost_one_pass(gateway):
    client, before = gateway.openai(max_retries=0), gateway.passes()
    model = client.models.list().data[0].id
    # It says that it waits for ever, and goes.
    headers = {"x-stainless-read-timeout": "600"}
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.05).embeddings.create(
            model=model, input="asked for again and again", extra_headers=headers
        )
    for _ in range(2):
        client.embeddings.create(model=model, input="asked for again and again")
    assert gateway.passes() - before == 1


@pytest.fixture(scope="module")
def talk(chat_folder):
    gateway = Gateway(chat_folder)
    yield gateway
    gateway.close()


def test_openai_chats(talk):
    client = talk.openai()
    model = client.models.list().data[0].id
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    asked = dict(model=model, messages=messages, max_tokens=5, temperature=0)
    whole = client.chat.completions.create(**asked)
    (choice,) = whole.choices
    assert choice.message.role == "assistant" and choice.finish_reason in ("length", "stop")
    assert whole.usage.completion_tokens <= 5 and whole.usage.total_tokens > whole.usage.prompt_tokens > 10
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(piece.delta.content for piece in pieces) == choice.message.content
    assert [piece.delta.role for piece in pieces] == ["assistant"] + [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == choice.finish_reason and chunks[-1].usage == whole.usage
    # The text that the template makes, continued.
    text = "system: Be brief.\nuser: Hello\nassistant:"
    same = client.completions.create(model=model, prompt=text, max_tokens=5, temperature=0)
    assert same.choices[0].text == choice.message.content
    stopped = client.chat.completions.create(**asked, stop=choice.message.content[1])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == choice.message.content[: choice.message.content.index(choice.message.content[1])]


def test_what_a_chat_cannot_have_is_refused_by_name(talk):
    client = talk.openai()
    asked = dict(model=client.models.list().data[0].id, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    for name, value in dict(
        top_p=0.5, n=2, presence_penalty=3, frequency_penalty=-3, logit_bias={"1": 101}, tools=[tool], logprobs=True
    ).items():
        with pytest.raises(openai.BadRequestError, match=name) as caught:
            client.chat.completions.create(**{**asked, name: value})
        assert caught.value.param == name
    for messages, code in [
        ([{"role": "user", "content": image}], "unsupported"),
        ([{"role": "user", "content": "a<|endoftext|>"}], "text-refused"),
        ([{"role": "user", "content": ""}], "text-refused"),
        ([], "text-refused"),
        ([{"role": "user", "content": "word " * 500}], "context_length_exceeded"),
    ]:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**asked, "messages": messages})
        assert caught.value.code == code
    assert client.chat.completions.create(**asked).choices, "after all that it works"


def test_the_metrics_can_be_read(gateway):
    text = gateway.get("/metrics")
    assert re.search(r"^hushed_gateway_passes_total \d+$", text, re.M) and text.endswith("# EOF\n")
