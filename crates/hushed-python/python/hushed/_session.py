"""What the objects that hold a session or a server have in common."""

from types import TracebackType
from typing import NoReturn, Optional, Protocol, Type, TypeVar

from ._settings import Connection, How, at_least, bucket_of, flag

Self = TypeVar("Self", bound="Closing")


class Closing:
    """Closed at the end of a ``with``."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class _Native(Protocol):
    @property
    def bundle(self) -> str: ...

    def close(self) -> None: ...


class Session(Closing):
    """A client with a session that it opens when it needs one."""

    _server: str
    _native: _Native

    @property
    def bundle(self) -> str:
        """The hash of the model's public part, in hexadecimal."""
        return self._native.bundle

    def close(self) -> None:
        """Ends the session. A later call opens another."""
        self._native.close()

    def __repr__(self) -> str:
        return f"<hushed.{type(self).__name__} of {self._server}>"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a hushed.{name} cannot be pickled or copied: it holds keys that are used once")


class TextSession(Session):
    """A client whose texts are run in the same way at every call."""

    def _set(
        self,
        connection: Connection,
        bucket: Optional[int],
        truncate: Optional[bool],
        public_table: Optional[bool],
    ) -> None:
        """What a constructor was given, checked before anything is opened."""
        self._server = connection.server
        self._bucket = bucket_of(bucket)
        self._truncate = flag(truncate, "HUSHED_TRUNCATE")
        self._public_table = flag(public_table, "HUSHED_PUBLIC_TABLE")

    def _how(self, batch_size: int = 1) -> How:
        return How(
            batch=at_least(1, batch_size, "batch_size"),
            bucket=self._bucket,
            truncate=self._truncate,
            public_table=self._public_table,
        )
