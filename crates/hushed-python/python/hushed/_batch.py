"""Batches under encryption: texts are left with a server that works alone, and answers are fetched later."""

import time
import warnings
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple, TypeVar, Union

import numpy as np

from . import _native
from ._errors import NetworkError, UsageError
from ._settings import Batching, Connection, PathLike, at_least, flag, texts_of, variable

_Answer = TypeVar("_Answer")

#: What a server may learn of the lengths of texts.
_LENGTHS = ("public", "bucket", "private")


class JobStatus(NamedTuple):
    """How far a job is."""

    state: str
    """``queued``, ``running``, ``done``, ``failed``, or ``unknown`` to the server."""
    ahead: int
    """Jobs before a queued one."""
    layer: float
    """Layers that are done of a running one."""
    layers: int
    """Layers in all."""
    seconds_left: Optional[int]
    """Estimated; ``None`` where nothing is known."""
    why: Optional[str]
    """Why it failed."""


class Batches:
    """What batches for encoders and for decoders have in common."""

    def __init__(
        self,
        server: Optional[str] = None,
        *,
        keys: Optional[PathLike] = None,
        make_keys: bool = False,
        pin: Optional[str] = None,
        ca: Optional[PathLike] = None,
        token_file: Optional[PathLike] = None,
        cert: Optional[PathLike] = None,
        key: Optional[PathLike] = None,
        tokenizer_sha256: Optional[str] = None,
        manifest: Optional[PathLike] = None,
        public: Optional[PathLike] = None,
        lengths: Optional[str] = None,
        truncate: Optional[bool] = None,
        days: int = 90,
        max_keys: int = 1024,
        max_key_bytes: int = 16 << 30,
    ) -> None:
        connection = Connection.of(
            server,
            pin=pin,
            ca=ca,
            token_file=token_file,
            cert=cert,
            key=key,
            tokenizer_sha256=tokenizer_sha256,
            bundle=None,
            cache_dir=None,
        )
        keys = keys if keys is not None else variable("HUSHED_KEYS")
        if keys is None:
            raise UsageError("which keys? give keys=, a folder (make_keys=True makes them), or set HUSHED_KEYS", "usage")
        lengths = lengths if lengths is not None else variable("HUSHED_LENGTHS")
        if lengths is not None and lengths not in _LENGTHS:
            raise UsageError(f"lengths is one of {', '.join(_LENGTHS)}", "usage")
        days = at_least(1, days, "days")
        if days > 3650:
            raise UsageError(f"days={days}: keys are for 3650 days at most", "limit")
        self._batching = Batching(
            connection=connection,
            keys=keys,
            manifest=manifest if manifest is not None else variable("HUSHED_MANIFEST"),
            public=public if public is not None else variable("HUSHED_PUBLIC"),
            make_keys=bool(make_keys),
            days=days,
            max_keys=at_least(1, max_keys, "max_keys"),
            max_key_bytes=at_least(1, max_key_bytes, "max_key_bytes"),
            truncate=flag(truncate, "HUSHED_TRUNCATE"),
            lengths=lengths,
        )

    def status(self, job: str) -> JobStatus:
        """How far a job is. A reply that is here already is ``done``; the server is not asked about it."""
        state, ahead, layer, layers, left, why = _native.batch_status(self._batching, job_id(job))
        return JobStatus(state, ahead, layer, layers, left or None, why)

    def forget(self, job: str) -> None:
        """Deletes what the key folder keeps of a job whose answers are no longer needed."""
        _native.batch_forget(self._batching, job_id(job))

    def __repr__(self) -> str:
        return f"<hushed.{type(self).__name__} of {self._batching.connection.server}>"

    def _submitted(self, submitted: Tuple[str, List[str]]) -> str:
        job, lines = submitted
        for line in lines:
            warnings.warn(line, UserWarning, stacklevel=3)
        return job

    def _checked(self, found: Tuple[_Answer, bool]) -> _Answer:
        answer, unchecked = found
        if unchecked:
            warnings.warn("the manifest has no canary: these answers are unchecked", UserWarning, stacklevel=3)
        return answer

    def _wait(self, job: str, timeout: Optional[float]) -> None:
        """Until a job is neither queued nor running."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status(job)
            if status.state not in ("queued", "running"):
                return
            wait = min(15.0, max(1.0, (status.seconds_left or 0) / 50))
            if until is not None and time.monotonic() + wait > until:
                raise NetworkError("the job is not done yet: ask again later; it goes on", "timeout")
            time.sleep(wait)


class BatchEncoder(Batches):
    """Embeddings of batches by ``fhe``: the server computes alone, for minutes to hours, while this program may end.

    >>> enc = hushed.BatchEncoder("models.example.org:7450", ca="ca.pem", keys="keys", make_keys=True)
    >>> job = enc.submit(texts)               # encrypted here, and sent; the id of the job
    >>> enc.status(job).state
    'running'
    >>> enc.result(job).shape                 # hours later, in any process
    (255, 384)

    ``keys`` is the key folder of ``hushed embed --protocol fhe --keys``: it has the secret key, the server's manifest
    and what waits for an answer, and must last until the answers are there. ``make_keys=True`` makes keys where there
    are none. They take gigabytes, are sent once, and expire after ``days``. Nothing is kept in this object, and nothing
    is connected before the first call. Arguments may come from the environment as for the command (docs/python.md).
    """

    def submit(
        self,
        sentences: Union[str, Iterable[str]],
        *,
        progress: Optional[Callable[[str, int, int], Any]] = None,
    ) -> str:
        """Encrypts the texts, sends what the server lacks, and returns the id of the job.

        The same texts that wait for an answer are the same job: after any interruption, call this again. All texts are
        checked before anything is encrypted. ``progress(what, done, of)`` is called while keys are made, texts
        encrypted, and either sent. Texts that repeat themselves, or that were cut, give a ``UserWarning``, without
        their words.
        """
        texts = texts_of([sentences] if isinstance(sentences, str) else sentences)
        return self._submitted(_native.batch_submit(self._batching, texts, progress))

    def result(self, job: str, *, timeout: Optional[float] = None) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """The answers, float32 of shape (n, d): waits for the job, fetches the reply and decrypts it here. Of a
        classifier they are its logits, of a decoder the hidden states of the last rows.

        With ``timeout``, in seconds, a :class:`NetworkError` named ``timeout`` is raised if the job is not done by then;
        the job goes on. If the answer of the canary is wrong, a :class:`NetworkError` named ``canary`` is raised, the
        keys are retired, and there are no answers: do not tell the server (docs/fhe.md). So it is with ``reply-shape``,
        if there is more in the reply than answers. Without a canary a ``UserWarning`` says that the answers are
        unchecked. They can be decrypted again until :meth:`forget`; each time counts.
        """
        self._wait(job, timeout)
        numbers, rows = self._checked(_native.batch_result(self._batching, job_id(job)))
        vectors: "np.ndarray[Any, np.dtype[np.float32]]" = np.frombuffer(numbers, dtype=np.float32)
        return vectors.reshape((rows, -1 if rows else 0))


def job_id(job: str) -> str:
    """The id that ``submit`` returned."""
    if not isinstance(job, str):
        raise TypeError(f"job is the id that submit returned, not {type(job).__name__}")
    return job
