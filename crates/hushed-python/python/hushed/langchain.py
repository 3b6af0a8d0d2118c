"""LangChain's interface to :class:`hushed.SentenceEncoder`: ``pip install 'hushed[langchain]'``."""

from typing import Any, List

from langchain_core.embeddings import Embeddings

from ._encoder import SentenceEncoder


class HushedEmbeddings(Embeddings):
    """Embeddings by a server that sees neither the texts nor the embeddings.

    Arguments are those of :class:`hushed.SentenceEncoder`; ``batch_size`` is the most texts that share a pass. The
    model's prompts for queries and documents are added, where it has them.

    >>> HushedEmbeddings("127.0.0.1:7450", pin="9f86d0…").embed_query("a private question")
    """

    def __init__(self, *arguments: Any, batch_size: int = 8, **options: Any) -> None:
        self.encoder = SentenceEncoder(*arguments, **options)
        self.batch_size = batch_size

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        """The embeddings of the texts, in their order."""
        vectors: List[List[float]] = self.encoder.encode_document(texts, batch_size=self.batch_size).tolist()
        return vectors

    def embed_query(self, text: str) -> List[float]:
        """The embedding of a query."""
        vector: List[float] = self.encoder.encode_query(text).tolist()
        return vector
