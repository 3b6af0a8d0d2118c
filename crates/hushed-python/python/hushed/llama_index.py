"""LlamaIndex's interface to :class:`hushed.SentenceEncoder`: ``pip install 'hushed[llama-index]'``."""

import asyncio
from typing import Any, List

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from ._encoder import SentenceEncoder


class HushedEmbedding(BaseEmbedding):
    """Embeddings by a server that sees neither the texts nor the embeddings.

    Arguments are those of :class:`hushed.SentenceEncoder`; ``embed_batch_size`` is the most texts that share a pass. The
    model's prompts for queries and documents are added, where it has them.

    >>> HushedEmbedding("127.0.0.1:7450", pin="9f86d0…").get_query_embedding("a private question")
    """

    _encoder: SentenceEncoder = PrivateAttr()

    def __init__(self, *arguments: Any, embed_batch_size: int = 8, **options: Any) -> None:
        encoder = SentenceEncoder(*arguments, **options)
        super().__init__(model_name=f"hushed-{encoder.bundle[:12]}", embed_batch_size=embed_batch_size)
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names it."""
        return "HushedEmbedding"

    def _get_query_embedding(self, query: str) -> List[float]:
        vector: List[float] = self._encoder.encode_query(query).tolist()
        return vector

    def _get_text_embedding(self, text: str) -> List[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        vectors: List[List[float]] = self._encoder.encode_document(texts, batch_size=self.embed_batch_size).tolist()
        return vectors

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
