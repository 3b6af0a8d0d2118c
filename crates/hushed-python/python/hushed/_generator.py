"""A text continued token by token."""

import weakref
from typing import Iterator, NoReturn, Optional, Sequence, Union

from . import _native
from ._session import Session
from ._settings import Connection, PathLike, Wanted, at_least, bucket_of, close_quietly, flag, texts_of


class Generator(Session):
    """Continues texts with a server that sees neither the text nor its continuation.

    >>> with hushed.Generator("127.0.0.1:7450", pin="9f86d0…") as gen:
    ...     for piece in gen.generate("Once upon a time", max_tokens=20):
    ...         print(piece, end="", flush=True)

    The server learns the number of tokens of the prompt (rounded up with ``bucket``), and the number of passes and when
    they run: so where the text ends, unless ``pad_output`` is set. Arguments of the connection are those of
    :class:`SentenceEncoder`. One text is continued at a time. It cannot be pickled, and refuses to work in a process
    that was forked from its own.
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
        cache_dir: Optional[PathLike] = None,
        bucket: Optional[int] = None,
        public_table: Optional[bool] = None,
    ) -> None:
        connection = Connection.of(
            server, pin=pin, ca=ca, token_file=token_file, cert=cert, key=key, bundle=bundle, cache_dir=cache_dir
        )
        self._server = connection.server
        self._bucket = bucket_of(bucket)
        self._public_table = flag(public_table, "HUSHED_PUBLIC_TABLE")
        self._native: _native.Generator = _native.Generator(connection)
        self._finalizer = weakref.finalize(self, close_quietly, self._native)

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 32,
        temperature: float = 0.0,
        seed: Optional[int] = None,
        stop: Union[str, Sequence[str]] = (),
        pad_output: bool = False,
    ) -> "Generation":
        """An iterator of the pieces of text that follow ``prompt``, each as soon as its pass has ended.

        ``temperature`` is from 0, which takes the likeliest token, to 2; the same ``seed`` draws the same tokens, until
        the server is restarted. The text ends before the first of ``stop``. ``pad_output`` runs ``max_tokens`` passes
        before the first piece. It begins at once; a later call, or dropping the iterator, ends it.
        """
        stops = [stop] if isinstance(stop, str) else list(stop)
        # The prompt is text 0, as in the errors of the server's side.
        texts_of([prompt, *stops])
        wanted = Wanted(
            max_tokens=at_least(1, max_tokens, "max_tokens"),
            temperature=float(temperature),
            seed=None if seed is None else at_least(0, seed, "seed"),
            stop=stops,
            bucket=self._bucket,
            pad_output=bool(pad_output),
            public_table=self._public_table,
        )
        return Generation(self._native.generate(prompt, wanted), self)

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a prompt and its continuation together."""
        return self._native.max_tokens

    def close(self) -> None:
        """Ends the session, and the text under way. A later call opens another."""
        self._native.close()


class Generation(Iterator[str]):
    """A text that is being continued: an iterator of its pieces, which may be empty."""

    def __init__(self, native: "_native.Generation", owner: Generator) -> None:
        self._native = native
        # A generator that is collected ends its text, so `for piece in Generator(…).generate(…)` needs it.
        self._owner = owner

    @property
    def finish(self) -> Optional[str]:
        """Why the text ended: ``end`` (the model), ``stop`` or ``length``; ``None`` before its end."""
        return self._native.finish

    def __next__(self) -> str:
        piece = self._native.next()
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Ends it before its end. The session is kept."""
        self._native.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a text under way cannot be pickled or copied")
