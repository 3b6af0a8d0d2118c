"""Examples of clients' own documentation, unmodified but for the address, from a table: with `--any-model` the names of
models in them are accepted too. A row whose client is not installed is skipped."""

import asyncio
import concurrent.futures

import pytest

from test_gateway import GOLDEN_CLASSIFIER, Gateway

TEXTS = ["a private text", "another one"]
MESSAGES = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Hello!"}]


def openai(url, **options):
    return pytest.importorskip("openai").OpenAI(base_url=url + "/v1", api_key="none", **options)


def hub(url, **options):
    return pytest.importorskip("huggingface_hub").InferenceClient(url, **options)


def langchain(name, url, **options):
    module = pytest.importorskip("langchain_openai")
    return getattr(module, name)(base_url=url + "/v1", api_key="none", **options)


def index(url, **options):
    module = pytest.importorskip("llama_index.embeddings.openai")
    return module.OpenAIEmbedding(api_base=url + "/v1", api_key="none", **options)


async def openai_later(url, call):
    """What `call` answers, of the client whose calls are awaited."""
    async with pytest.importorskip("openai").AsyncOpenAI(base_url=url + "/v1", api_key="none") as client:
        return await call(client)


async def hub_later(url, call):
    async with pytest.importorskip("huggingface_hub").AsyncInferenceClient(url) as client:
        return await call(client)


def openai_at_once(url):
    client = openai(url)
    one = lambda i: embedded(client.embeddings.create(model="m", input=f"text {i}"))  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return all(pool.map(one, range(8)))


async def pieces(client):
    """The text of a stream."""
    asked = dict(model="m", messages=MESSAGES, max_tokens=2, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in await client.chat.completions.create(**asked)])


def langchain_store(url):
    store = pytest.importorskip("langchain_core.vectorstores").InMemoryVectorStore
    embeddings = langchain("OpenAIEmbeddings", url, check_embedding_ctx_length=False)
    return len(store.from_texts(TEXTS, embedding=embeddings).similarity_search("private", k=1)) == 1


def langchain_chain(url):
    prompts = pytest.importorskip("langchain_core.prompts")
    parser = pytest.importorskip("langchain_core.output_parsers").StrOutputParser()
    prompt = prompts.ChatPromptTemplate.from_messages([("system", "Translate to {language}."), ("user", "{text}")])
    chain = prompt | langchain("ChatOpenAI", url, model="m", max_tokens=2) | parser
    return isinstance(chain.invoke({"language": "Italian", "text": "hi!"}), str)


def langchain_messages(url):
    messages = pytest.importorskip("langchain_core.messages")
    asked = [messages.SystemMessage("Be brief."), messages.HumanMessage("Hi"), messages.AIMessage("Hello"), messages.HumanMessage("Go")]
    return langchain("ChatOpenAI", url, model="m", max_tokens=2).invoke(asked).response_metadata["finish_reason"]


def vectors(found, number=1):
    """Whether these are so many embeddings of one length."""
    return len(found) == number and len({len(vector) for vector in found}) == 1 and len(found[0]) > 1


def embedded(response, number=1):
    return vectors([item.embedding for item in response.data], number)


def hub_stream(url):
    client = hub(url)  # a stream ends with its client
    return list(client.chat_completion(MESSAGES, model="m", max_tokens=2, stream=True))


#: What is called, and whether its answer is right.
EMBED = {
    "openai, the guide": lambda url: embedded(
        openai(url).embeddings.create(input="Your text string goes here", model="text-embedding-3-small")
    ),
    "openai, a list": lambda url: embedded(openai(url).embeddings.create(input=TEXTS, model="text-embedding-3-large"), 2),
    "openai, ada and a user": lambda url: embedded(
        openai(url).embeddings.create(model="text-embedding-ada-002", input="The food was delicious", user="user-1234")
    ),
    "openai, float": lambda url: embedded(
        openai(url).embeddings.create(model="text-embedding-ada-002", input="The food", encoding_format="float")
    ),
    "openai, extra body": lambda url: embedded(
        openai(url).embeddings.create(model="m", input=["word " * 200], extra_body={"truncate": True, "input_type": "query"})
    ),
    "openai, awaited": lambda url: embedded(
        asyncio.run(openai_later(url, lambda client: client.embeddings.create(model="m", input=TEXTS))), 2
    ),
    "openai, eight at once": lambda url: openai_at_once(url),
    "openai, a raw response": lambda url: embedded(
        openai(url).embeddings.with_raw_response.create(model="m", input="The food was delicious").parse()
    ),
    "openai, models": lambda url: len(openai(url).models.list().data) == 1,
    "openai, a model": lambda url: openai(url).models.retrieve("text-embedding-3-small").object == "model",
    "openai, a timeout": lambda url: embedded(openai(url, timeout=60, max_retries=1).embeddings.create(input="a", model="m")),
    "openai, a slash": lambda url: embedded(openai(url + "/").embeddings.create(input="b", model="m")),
    "langchain, query": lambda url: vectors(
        [langchain("OpenAIEmbeddings", url, model="text-embedding-3-small", check_embedding_ctx_length=False).embed_query("a")]
    ),
    "langchain, documents": lambda url: vectors(
        langchain("OpenAIEmbeddings", url, model="m", check_embedding_ctx_length=False, chunk_size=16).embed_documents(TEXTS), 2
    ),
    "langchain, the defaults for forty documents": lambda url: vectors(
        langchain("OpenAIEmbeddings", url, check_embedding_ctx_length=False).embed_documents([f"text {i}" for i in range(40)]), 40
    ),
    "langchain, awaited": lambda url: vectors(
        asyncio.run(langchain("OpenAIEmbeddings", url, check_embedding_ctx_length=False).aembed_documents(TEXTS)), 2
    ),
    "langchain, a store of vectors": lambda url: langchain_store(url),
    "llama_index, awaited": lambda url: vectors([asyncio.run(index(url).aget_text_embedding("a text"))]),
    "llama_index, one": lambda url: vectors([index(url).get_text_embedding("a text")]),
    "llama_index, a batch": lambda url: vectors(index(url, model="text-embedding-3-small").get_text_embedding_batch(TEXTS), 2),
    "llama_index, a query": lambda url: vectors([index(url, embed_batch_size=10).get_query_embedding("a query")]),
    "hub, features": lambda url: hub(url).feature_extraction("Hi, who are you?").shape[0] == 1,
    "hub, features, normalised and cut": lambda url: hub(url)
    .feature_extraction("word " * 200, normalize=True, truncate=True, truncation_direction="left")
    .ndim
    == 2,
    "hub, awaited": lambda url: asyncio.run(hub_later(url, lambda client: client.feature_extraction("Hi, who are you?"))).ndim == 2,
    "hub, similarity": lambda url: len(hub(url).sentence_similarity("a", other_sentences=TEXTS)) == 2,
    "hub, OpenAI's way": lambda url: hub(url).feature_extraction("a", model=url).ndim == 2,
}
CHAT = {
    "openai, the guide": lambda url: openai(url).chat.completions.create(model="gpt-4o", messages=MESSAGES, max_tokens=2).choices,
    "openai, the reference": lambda url: openai(url)
    .chat.completions.create(
        model="gpt-4o-mini", messages=MESSAGES, max_completion_tokens=2, temperature=0, top_p=1, n=1, store=True,
        metadata={"a": "b"}, service_tier="auto", seed=7, user="me", response_format={"type": "text"}, stop=None,
        frequency_penalty=0, presence_penalty=0, logprobs=False, tool_choice="none", parallel_tool_calls=True,
    )  # fmt: skip
    .usage.completion_tokens
    <= 2,
    "openai, a stream": lambda url: [
        chunk.choices[0].delta.content
        for chunk in openai(url).chat.completions.create(model="gpt-4o", messages=MESSAGES, max_tokens=3, stream=True)
    ],
    "openai, an awaited stream": lambda url: isinstance(asyncio.run(openai_later(url, pieces)), str),
    "openai, parts": lambda url: openai(url)
    .chat.completions.create(
        model="m", max_tokens=1, messages=[{"role": "user", "content": [{"type": "text", "text": "What is in it?"}]}]
    )
    .choices,
    "openai, names": lambda url: openai(url)
    .chat.completions.create(model="m", max_tokens=1, messages=[{"role": "user", "name": "bob", "content": "Hi"}])
    .choices,
    "openai, developer": lambda url: openai(url)
    .chat.completions.create(
        model="o3-mini", max_completion_tokens=1, reasoning_effort="low",
        messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    )  # fmt: skip
    .choices,
    "openai, a completion": lambda url: openai(url)
    .completions.create(model="gpt-3.5-turbo-instruct", prompt="Say this is a test", max_tokens=2, temperature=0)
    .choices[0]
    .text
    is not None,
    "openai, several prompts": lambda url: len(
        openai(url).completions.create(model="m", prompt=["Once", "The end"], max_tokens=2, logprobs=None).choices
    )
    == 2,
    "openai, a streamed completion": lambda url: list(
        openai(url).completions.create(model="m", prompt="Once", max_tokens=2, stream=True, stream_options={"include_usage": True})
    )[-1].usage.completion_tokens
    <= 2,
    "langchain, invoke": lambda url: langchain("ChatOpenAI", url, model="gpt-4o-mini", max_tokens=2).invoke("Hello").content
    is not None,
    "langchain, a conversation": lambda url: langchain("ChatOpenAI", url, model="m", temperature=0, max_tokens=2)
    .invoke([("system", "Translate."), ("human", "I love programming.")])
    .content
    is not None,
    "langchain, a chain": lambda url: langchain_chain(url),
    "langchain, messages": lambda url: langchain_messages(url),
    "langchain, stream": lambda url: list(langchain("ChatOpenAI", url, model="m", max_tokens=2).stream("Hello")),
    "langchain, batch": lambda url: len(langchain("ChatOpenAI", url, model="m", max_tokens=1).batch(["a", "b"])) == 2,
    "langchain, a completion": lambda url: langchain("OpenAI", url, model="gpt-3.5-turbo-instruct", max_tokens=2).invoke("Once")
    is not None,
    "langchain, completions at once": lambda url: len(
        langchain("OpenAI", url, model="m", max_tokens=2).generate(["Once", "The end"]).generations
    )
    == 2,
    "hub, a chat": lambda url: hub(url).chat_completion(MESSAGES, model="m", max_tokens=2).choices,
    "hub, OpenAI's way": lambda url: hub(url).chat.completions.create(model="m", messages=MESSAGES, max_tokens=2).choices,
    "hub, an awaited chat": lambda url: asyncio.run(
        hub_later(url, lambda client: client.chat_completion(MESSAGES, model="m", max_tokens=2))
    ).choices,
    "hub, a streamed chat": lambda url: hub_stream(url),
}
CLASSIFY = {
    "hub, classes": lambda url: hub(url).text_classification("I like you")[0].label,
    "hub, the likeliest": lambda url: len(hub(url).text_classification("I love you", top_k=1)) == 1,
}


@pytest.fixture(scope="module")
def embeds(folder):
    gateway = Gateway(folder, "--any-model")
    yield gateway.url
    gateway.close()


@pytest.fixture(scope="module")
def chats(chat_folder):
    gateway = Gateway(chat_folder, "--any-model")
    yield gateway.url
    gateway.close()


@pytest.fixture(scope="module")
def classifies():
    gateway = Gateway(GOLDEN_CLASSIFIER)
    yield gateway.url
    gateway.close()


@pytest.mark.parametrize("call", EMBED.values(), ids=EMBED)
def test_embeddings(call, embeds):
    assert call(embeds)


@pytest.mark.parametrize("call", CHAT.values(), ids=CHAT)
def test_generation(call, chats):
    assert call(chats)


@pytest.mark.parametrize("call", CLASSIFY.values(), ids=CLASSIFY)
def test_classes(call, classifies):
    assert call(classifies)
