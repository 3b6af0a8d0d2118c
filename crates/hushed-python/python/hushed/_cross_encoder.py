"""Scores of pairs of texts."""

import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _native
from ._session import TextSession
from ._settings import Connection, PathLike, close_quietly, texts_of

Pair = Sequence[str]
Floats = npt.NDArray[np.float32]


class CrossEncoder(TextSession):
    """Scores pairs of texts with a server that sees neither the texts nor their scores: the methods of
    ``sentence_transformers.CrossEncoder`` for a model on a server.

    >>> model = hushed.CrossEncoder("127.0.0.1:7450", pin="9f86d0…")
    >>> model.predict([("notice period", "Either side may end it in three months."), ("notice period", "The weather")])
    array([0.9713, 0.0002], dtype=float32)
    >>> model.rank("notice period", ["The weather", "Either side may end it in three months."])
    [{'corpus_id': 1, 'score': 0.9713}, {'corpus_id': 0, 'score': 0.0002}]

    The server's model is a classifier of pairs: with one number (a score), or with several (``num_labels``) where the
    operator opens all of them (``hushed serve --answers logits``). The server learns how many tokens each pair has,
    not where the first text ends. Other arguments are those of :class:`SentenceEncoder` without ``prompts``. Threads may
    share a cross-encoder; their calls run one after the other. It cannot be pickled, and refuses to work in a process
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
        self._native: _native.CrossEncoder = _native.CrossEncoder(connection)
        self._finalizer = weakref.finalize(self, close_quietly, self._native)

    def predict(
        self,
        inputs: Union[Pair, Iterable[Pair]],
        batch_size: int = 8,
        *,
        activation_fn: Optional[Callable[[Floats], Any]] = None,
        apply_softmax: bool = False,
    ) -> Any:
        """The score of each pair as a float32 array; of one pair alone, its own. A model of several classes gives a row
        of numbers for each.

        ``activation_fn`` is applied to the array of logits here, in place of the model's own function (the sigmoid for
        a score, unless its folder says otherwise); ``apply_softmax`` is for several classes. ``batch_size`` is the most
        pairs that share a pass; the longest run first.
        """
        given = list(inputs)
        single = len(given) == 2 and all(isinstance(text, str) for text in given)
        pairs = [_pair(pair) for pair in ([given] if single else given)]
        how = self._how(batch_size)
        rows = self._native.logits(pairs, how) if pairs else []
        logits: Floats = np.asarray(rows, dtype=np.float32).reshape(len(rows), self.num_labels)
        scores: Any = logits
        if activation_fn is not None:
            scores = np.asarray(activation_fn(logits))
        elif self._native.sigmoid:
            scores = (1.0 / (1.0 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
        if self.num_labels == 1:
            scores = scores.reshape(-1)
        elif apply_softmax:
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores = powers / powers.sum(axis=1, keepdims=True)
        return scores[0] if single else scores

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: Optional[int] = None,
        return_documents: bool = False,
        batch_size: int = 8,
        *,
        activation_fn: Optional[Callable[[Floats], Any]] = None,
    ) -> List[Dict[str, Any]]:
        """The documents by their scores for a query, the largest first: ``corpus_id``, ``score``, and with
        ``return_documents`` also ``text``. ``top_k`` is the most that are given; all are scored."""
        if self.num_labels != 1:
            raise ValueError(f"rank() needs a model with one number, and this one has {self.num_labels}: use predict()")
        listed = texts_of(documents)
        scores = self.predict([(query, document) for document in listed], batch_size, activation_fn=activation_fn)
        results = []
        for place in sorted(range(len(listed)), key=lambda place: -scores[place])[:top_k]:
            result: Dict[str, Any] = {"corpus_id": place, "score": scores[place]}
            if return_documents:
                result["text"] = listed[place]
            results.append(result)
        return results

    @property
    def num_labels(self) -> int:
        """Numbers per pair: 1 for a score."""
        return len(self._native.labels)

    @property
    def labels(self) -> List[str]:
        """The classes, in the model's order."""
        return self._native.labels

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a pair, special ones counted."""
        return self._native.max_tokens


def _pair(given: Pair) -> Tuple[str, str]:
    if isinstance(given, str):
        raise TypeError("a pair is two texts, not one: predict([(query, document), …])")
    texts = texts_of(list(given))
    if len(texts) != 2:
        raise ValueError(f"a pair is two texts, not {len(texts)}")
    return texts[0], texts[1]
