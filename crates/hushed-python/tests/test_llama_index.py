"""LlamaIndex's interface, where it is installed."""

import asyncio

import pytest

import hushed

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")


def test_embeddings_are_the_published_ones(server, published):
    from hushed.llama_index import HushedEmbedding

    embedding = HushedEmbedding(server.address, pin=server.pin, truncate=True)
    texts, answers = zip(*published[:3])
    vectors = embedding.get_text_embedding_batch(list(texts))
    assert hushed.SentenceEncoder.similarity_pairwise(vectors, answers).min() >= 0.9999
    query = embedding.get_query_embedding(texts[0])
    assert hushed.SentenceEncoder.similarity_pairwise([query], answers[:1])[0] >= 0.9999
    later = asyncio.run(embedding.aget_query_embedding(texts[0]))
    assert hushed.SentenceEncoder.similarity_pairwise([later], answers[:1])[0] >= 0.9999
    assert embedding.embed_batch_size == 8 and embedding.model_name.startswith("hushed-")
