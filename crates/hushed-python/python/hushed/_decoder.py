"""Next tokens and likelihoods of batches under encryption, by a decoder that sees neither texts nor tokens."""

import dataclasses
import json
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Union

from . import _native
from ._batch import Batches, job_id
from ._settings import Batching, at_least, texts_of


class NextToken(NamedTuple):
    """A token that may come next."""

    id: int
    """Its id."""
    text: str
    """How it reads."""
    log_probability: float
    """The natural logarithm of its probability."""


class Likelihood(NamedTuple):
    """How likely a text is."""

    log_probabilities: List[float]
    """Natural logarithms of the probabilities of its tokens from the second on, each after those before it."""
    log_likelihood: float
    """Their sum."""
    perplexity: Optional[float]
    """exp(-their mean); ``None`` of a text of one token."""


class Choice(NamedTuple):
    """Which ending of an item is the likeliest."""

    log_likelihoods: List[float]
    """The natural logarithm of each ending's probability after the prompt."""
    tokens: List[int]
    """Tokens of each ending."""
    pick: int
    """The likeliest, from 0."""
    margin: float
    """By how much it is likelier than the next, in natural logarithms."""
    right: Optional[bool]
    """Whether it is the item's ``"label"``, where it has one."""


class BatchDecoder(Batches):
    """What comes next in private texts, and how likely they are, by ``fhe``: the server computes alone.

    >>> dec = hushed.BatchDecoder("models.example.org:7450", ca="ca.pem", keys="keys", make_keys=True)
    >>> job = dec.submit(["Once upon a"])
    >>> dec.next(job, top=1)                  # an hour later, in any process
    [[NextToken(id=640, text=' time', log_probability=-0.31)]]

    Arguments are those of :class:`BatchEncoder`. A run gives one token a text. What follows it takes another run, and a
    text that holds a token from a reply must not be sent: it would tell the server something about the key
    (docs/ensi.md). Likelihoods (:meth:`score`, :meth:`choose`) need a server whose manifest answers with all rows.
    """

    def submit(
        self,
        texts: Union[str, Iterable[str]],
        *,
        likelihoods: bool = False,
        progress: Optional[Callable[[str, int, int], Any]] = None,
    ) -> str:
        """Encrypts the texts, sends what the server lacks, and returns the id of the job, for :meth:`next`.

        With ``likelihoods`` for :meth:`score` as well: a server that answers with less is refused before anything is
        made or sent, and so are texts that are too long, whatever ``truncate`` says. Else as
        :meth:`BatchEncoder.submit`.
        """
        texts = texts_of([texts] if isinstance(texts, str) else texts)
        wanted = self._wanted("likelihoods" if likelihoods else "next")
        return self._submitted(_native.batch_submit(wanted, texts, progress))

    def submit_items(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        progress: Optional[Callable[[str, int, int], Any]] = None,
    ) -> str:
        """The same of items for :meth:`choose`: each has a ``"prompt"`` and two or more ``"endings"``, of which
        ``"label"`` may name the right one, from 0. The texts are each prompt with each of its endings, which must
        share the prompt's tokens: let the prompt end, and the endings begin, where a word ends."""
        wanted = self._wanted("likelihoods")
        return self._submitted(_native.batch_submit_items(wanted, _lines(items), progress))

    def next(self, job: str, top: int = 5, *, timeout: Optional[float] = None) -> List[List[NextToken]]:
        """The ``top`` likeliest next tokens of each text, the likeliest first. Waits for the job, fetches the reply and
        decrypts it here, as :meth:`BatchEncoder.result` does; each call counts as a decryption."""
        job, top = job_id(job), at_least(1, top, "top")
        self._wait(job, timeout)
        found = self._checked(_native.batch_next(self._wanted("next"), job, top))
        return [[NextToken(*token) for token in text] for text in found]

    def score(
        self, job: str, texts: Union[str, Iterable[str]], *, timeout: Optional[float] = None
    ) -> List[Likelihood]:
        """How likely the texts are. They must be those of the job, which are not in its reply."""
        texts = texts_of([texts] if isinstance(texts, str) else texts)
        self._wait(job, timeout)
        found = self._checked(_native.batch_score(self._wanted("likelihoods"), job, texts))
        return [Likelihood(*text) for text in found]

    def choose(self, job: str, items: Iterable[Mapping[str, Any]], *, timeout: Optional[float] = None) -> List[Choice]:
        """Which ending of each item is the likeliest. The items must be those of the job, whose texts are not in its
        reply."""
        lines = _lines(items)
        self._wait(job, timeout)
        found = self._checked(_native.batch_choose(self._wanted("likelihoods"), job, lines))
        return [Choice(*item) for item in found]

    def _wanted(self, answer: str) -> Batching:
        return dataclasses.replace(self._batching, wanted=answer)


def _lines(items: Iterable[Mapping[str, Any]]) -> List[str]:
    """Items as lines of a file for ``hushed score --choices``, where they are checked."""
    if isinstance(items, (str, bytes, Mapping)):
        raise TypeError("items is a list of mappings, each with a 'prompt' and 'endings'")
    lines = []
    for item in items:
        if not isinstance(item, Mapping):
            raise TypeError(f"an item is a mapping with a 'prompt' and 'endings', not {type(item).__name__}")
        lines.append(json.dumps(dict(item)))
    return lines
