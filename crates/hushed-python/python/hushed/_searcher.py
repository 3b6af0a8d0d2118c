"""Documents of a server, searched with private queries."""

import json
import weakref
from typing import Any, List, NamedTuple, Optional

from . import _native
from ._session import TextSession
from ._settings import Connection, PathLike, at_least, close_quietly


class Hit(NamedTuple):
    """A document that was found."""

    place: int
    """Its place in the server's index, from 0."""
    text: Optional[str]
    """The beginning of its text; ``None`` where texts were not asked for."""
    score: Optional[float] = None
    """Its cosine to the query, rounded to 2^-12; ``None`` where scores were not asked for."""
    id: Optional[str] = None
    """The operator's name for it, which stays when others are removed; ``None`` where it has none, or without texts."""
    metadata: Any = None
    """What the operator keeps with it; ``None`` where there is none, or without texts."""


class Searcher(TextSession):
    """Searches a server's documents; the server sees neither the query nor what was found.

    >>> hushed.Searcher("127.0.0.1:7450", pin="9f86d0…").search("which contracts end this year?", top=1)
    [Hit(place=17, text='…', score=None)]

    Arguments are those of :class:`SentenceEncoder` without ``prompts``. Threads may share a searcher; their calls run one after the other.
    It cannot be pickled, and refuses to work in a process that was forked from its own.
    """

    def __init__(
        self,
        server: Optional[str] = None,
        *,
        pin: Optional[str] = None,
        ca: Optional[PathLike] = None,
        token_file: Optional[PathLike] = None,
        cert: Optional[PathLike] = None,
        key: Optional[PathLike] = None,
        bundle: Optional[PathLike] = None,
        bundle_sha256: Optional[str] = None,
        tokenizer_sha256: Optional[str] = None,
        template_sha256: Optional[str] = None,
        cache_dir: Optional[PathLike] = None,
        net: Optional[str] = None,
        bucket: Optional[int] = None,
        truncate: Optional[bool] = None,
        public_table: Optional[bool] = None,
    ) -> None:
        connection = Connection.of(
            server,
            pin=pin,
            ca=ca,
            token_file=token_file,
            cert=cert,
            key=key,
            bundle=bundle,
            bundle_sha256=bundle_sha256,
            tokenizer_sha256=tokenizer_sha256,
            template_sha256=template_sha256,
            cache_dir=cache_dir,
            net=net,
        )
        connection.warn_if_unpinned()
        self._set(connection, bucket, truncate, public_table)
        self._native: _native.Searcher = _native.Searcher(connection)
        self._finalizer = weakref.finalize(self, close_quietly, self._native)

    def search(self, query: str, top: int = 5, *, texts: bool = True, scores: bool = False) -> List[Hit]:
        """The ``top`` nearest documents (at most 100), the nearest first, with the beginnings of their ``texts``, and
        with their ``scores`` where the server's operator gives them (``hushed serve --search-scores``). Each document
        counts as a text of this client at the server, and so do each text that is fetched and each score."""
        if not isinstance(query, str):
            raise TypeError(f"query must be a str, not {type(query).__name__}")
        wanted = (at_least(1, top, "top"), bool(texts), bool(scores))
        found = self._native.search(query, wanted, self._how())
        return [Hit(*hit[:4], None if hit[4] is None else json.loads(hit[4])) for hit in found]

    def __len__(self) -> int:
        """How many documents the server has."""
        return self._native.documents

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a query, special ones counted."""
        return self._native.max_tokens
