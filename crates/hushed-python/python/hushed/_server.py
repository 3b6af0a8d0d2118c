"""A server in this process, for tests and notebooks."""

import tempfile
import weakref
from typing import NoReturn, Optional

from . import _native
from ._session import Closing
from ._settings import PathLike, Serving, at_least, tokens_of


class Server(Closing):
    """A running server; made by :func:`serve`."""

    def __init__(self, serving: Serving, folder: Optional["tempfile.TemporaryDirectory[str]"]) -> None:
        self._native = _native.Server(serving)
        # The certificate's folder lives as long as the server.
        self._folder = folder
        self._finalizer = weakref.finalize(self, _native.Server.close, self._native)

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return self._native.address

    @property
    def pin(self) -> str:
        """The SHA-256 of its certificate, in hexadecimal."""
        return self._native.pin

    @property
    def bundle(self) -> str:
        """The hash of its model's public part, in hexadecimal."""
        return self._native.bundle

    def close(self) -> None:
        """Lets passes in progress finish and ends the server."""
        self._native.close()
        self._finalizer.detach()
        if self._folder is not None:
            self._folder.cleanup()

    def __repr__(self) -> str:
        return f"<hushed.Server at {self.address}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hushed.Server cannot be pickled or copied: pass its address and pin")


def serve(
    folder: PathLike,
    *,
    certificates: Optional[PathLike] = None,
    port: int = 0,
    tokens: Optional[PathLike] = None,
    max_sessions: int = 4,
    max_tokens: Optional[int] = None,
    max_pass_tokens: int = 256,
    max_texts: int = 1000,
    public_table: bool = False,
    index: Optional[PathLike] = None,
    search_scores: bool = False,
    public_prefix: Optional[PathLike] = None,
    max_ahead: int = 0,
    max_drafts: int = 0,
    answers: Optional[str] = None,
) -> Server:
    """Serves a model folder on this machine's loopback, by protocol ``2pc``, until the server is closed.

    ``certificates`` is a folder for the development certificate, made there on first use; without it the certificate
    is made in a temporary folder, and the pin is another each time. Port 0 takes any free one. ``tokens`` is a file of
    the bearer tokens that clients need. ``index`` is an index of documents (``hushed index``) that clients may search,
    with ``search_scores`` also for the cosines of what is found, ``public_prefix`` a file whose text, which is no secret,
    stands before every one that is continued. ``max_ahead`` is for how many texts or later tokens, at most 128, a session may
    have products made ahead, and ``max_drafts`` how many guesses of next tokens, at most 15, a pass may verify
    (:class:`Generator`). ``answers`` is what clients get of a text that is classified or continued:
    ``"label"`` (usual), ``"top:K"``, of a classifier also ``"logits"``, which is usual for a head of one number, or
    ``"above:P"`` of classes of which several or none may be right, usual for them with a P of 0.5. The limits are those
    of ``hushed serve``.

    >>> with hushed.serve("DIR") as server:
    ...     enc = hushed.SentenceEncoder(server.address, pin=server.pin)
    """
    temporary = None
    if certificates is None:
        temporary = tempfile.TemporaryDirectory(prefix="hushed-")
        certificates = temporary.name
    serving = Serving(
        folder=folder,
        certificates=certificates,
        port=at_least(0, port, "port"),
        tokens=tokens,
        max_sessions=at_least(1, max_sessions, "max_sessions"),
        max_tokens=None if max_tokens is None else at_least(1, max_tokens, "max_tokens"),
        max_pass_tokens=at_least(1, max_pass_tokens, "max_pass_tokens"),
        max_texts=at_least(1, max_texts, "max_texts"),
        public_table=bool(public_table),
        index=index,
        search_scores=bool(search_scores),
        public_prefix=public_prefix,
        max_ahead=tokens_of(max_ahead, "max_ahead"),
        max_drafts=tokens_of(max_drafts, "max_drafts"),
        answers=None if answers is None else str(answers),
    )
    try:
        return Server(serving, temporary)
    except BaseException:
        if temporary is not None:
            temporary.cleanup()
        raise
