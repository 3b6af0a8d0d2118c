"""Classes of texts."""

import weakref
from typing import Iterable, List, Optional, Union

from . import _native
from ._session import TextSession
from ._settings import Connection, PathLike, close_quietly, texts_of

Answer = Union[str, List[str], List[float]]


class Classifier(TextSession):
    """Classifies texts with a server that sees neither the texts nor their classes; this side uses their labels alone.

    >>> hushed.Classifier("127.0.0.1:7450", pin="9f86d0…").classify(["a private text"])
    ['positive']

    ``answers`` is what :meth:`classify` gives of a text: ``"label"``, its class; ``"top:K"``, a list of the K likeliest,
    from the likeliest; ``"logits"``, a list of numbers in the order of ``labels``. More than the label only where the
    server's operator opens it (:func:`serve`). Of classes of which several or none may be right (``problem_type``),
    ``"label"`` gives the list of those whose probability is above the operator's threshold.

    Other arguments are those of :class:`SentenceEncoder` without ``prompts``. Threads may share a classifier; their calls run one after the
    other. It cannot be pickled, and refuses to work in a process that was forked from its own.
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
        answers: str = "label",
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
        self._native: _native.Classifier = _native.Classifier(connection, str(answers))
        self._finalizer = weakref.finalize(self, close_quietly, self._native)

    def classify(self, texts: Union[str, Iterable[str]], batch_size: int = 8) -> Union[Answer, List[Answer]]:
        """The class of each text, or what else was asked for by ``answers``, as a list; of one ``str`` alone, its own.
        ``batch_size`` is the most texts that share a pass; the server sees them in their order."""
        single = isinstance(texts, str)
        listed = texts_of([texts] if isinstance(texts, str) else texts)
        how = self._how(batch_size)
        answers = self._native.classify(listed, how)
        return answers[0] if single else answers

    @property
    def labels(self) -> List[str]:
        """The classes, in the model's order."""
        return self._native.labels

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a text, special ones counted."""
        return self._native.max_tokens
