"""A text continued token by token."""

import weakref
from typing import Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

from . import _native
from ._errors import InputError
from ._session import Session
from ._settings import (
    Connection,
    PathLike,
    Penalties,
    Wanted,
    at_least,
    bucket_of,
    close_quietly,
    flag,
    is_unicode,
    later_tokens,
    texts_of,
    variable,
)


class Generator(Session):
    """Continues texts with a server that sees neither the text nor its continuation.

    >>> with hushed.Generator("127.0.0.1:7450", pin="9f86d0…") as gen:
    ...     for piece in gen.generate("Once upon a time", max_tokens=20):
    ...         print(piece, end="", flush=True)

    The server learns the number of tokens of the prompt (rounded up with ``bucket``), and the number of passes and when
    they run: so where the text ends, unless ``pad_output`` is set. ``public_prefix`` is a file with the public text
    that the server must have before every one (:func:`serve`); without it the generator takes what the server has. With
    ``answers="top:K"`` the server must open the K likeliest tokens of each pass, which :attr:`Generation.top` gives.
    With ``ahead=N`` products of N later tokens at a time are made before they are needed, at a server that allows it
    (:func:`serve`): each token then takes less, and the server learns how many. With ``draft=N`` up to N next tokens are
    guessed by what followed the last ones where they occurred before, and verified in one pass, at a server that allows
    it: the text is the same, the server learns how many guesses are right, and each counts as a text. Such a text has no
    ``pad_output``. Arguments of the connection are those of :class:`SentenceEncoder`. One text is continued at a time. It cannot be pickled, and refuses to work in a process
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
        public_prefix: Optional[PathLike] = None,
        ahead: Optional[int] = None,
        draft: Optional[int] = None,
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
        self._server = connection.server
        self._connection = connection
        self._bucket = bucket_of(bucket)
        self._public_prefix = public_prefix or variable("HUSHED_PUBLIC_PREFIX")
        self._ahead = later_tokens(ahead, "ahead")
        self._draft = later_tokens(draft, "draft")
        self._public_table = flag(public_table, "HUSHED_PUBLIC_TABLE")
        self._native: _native.Generator = _native.Generator(connection, str(answers))
        self._finalizer = weakref.finalize(self, close_quietly, self._native)

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 32,
        temperature: float = 0.0,
        seed: Optional[int] = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Optional[Mapping[int, float]] = None,
        stop: Union[str, Sequence[str]] = (),
        pad_output: bool = False,
    ) -> "Generation":
        """An iterator of the pieces of text that follow ``prompt``, each as soon as its pass has ended.

        ``temperature`` is from 0, which takes the likeliest token, to 2; the same ``seed`` draws the same tokens, until
        the server is restarted. ``presence_penalty`` and ``frequency_penalty`` are taken from the logits of tokens that the
        answer has, and ``logit_bias`` is added to those of its ids, as in OpenAI's API: on this side, so the server learns
        nothing of it. The text ends before the first of ``stop``. ``pad_output`` runs ``max_tokens`` passes
        before the first piece. It begins at once; a later call, or dropping the iterator, ends it.
        """
        # The prompt is text 0, as in the errors of the server's side.
        texts_of([prompt])
        penalties = Penalties.of(presence_penalty, frequency_penalty, logit_bias)
        wanted = self._wanted(max_tokens, temperature, seed, penalties, stop, pad_output)
        return Generation(self._native.generate(prompt, wanted), self)

    def chat(
        self,
        messages: Iterable[Mapping[str, str]],
        *,
        max_tokens: int = 32,
        temperature: float = 0.0,
        seed: Optional[int] = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Optional[Mapping[int, float]] = None,
        stop: Union[str, Sequence[str]] = (),
        pad_output: bool = False,
    ) -> "Generation":
        """An iterator of the pieces of the answer to a conversation, as :meth:`generate` gives them.

        ``messages`` are ``{"role": …, "content": …}`` with the roles system, user and assistant. The model's chat template,
        which comes with its public part, makes a text of them here. A model without one is refused
        (``no-chat-template``), and so is a message that holds one of the model's special tokens.
        """
        self._connection.warn_if_unpinned(chats=True)
        pairs = messages_of(messages)
        penalties = Penalties.of(presence_penalty, frequency_penalty, logit_bias)
        wanted = self._wanted(max_tokens, temperature, seed, penalties, stop, pad_output)
        return Generation(self._native.chat(pairs, wanted), self)

    def _wanted(
        self,
        max_tokens: int,
        temperature: float,
        seed: Optional[int],
        penalties: Penalties,
        stop: Union[str, Sequence[str]],
        pad_output: bool,
    ) -> Wanted:
        return Wanted(
            max_tokens=at_least(1, max_tokens, "max_tokens"),
            temperature=float(temperature),
            seed=None if seed is None else at_least(0, seed, "seed"),
            penalties=penalties,
            stop=texts_of([stop] if isinstance(stop, str) else stop),
            bucket=self._bucket,
            pad_output=bool(pad_output),
            public_prefix=self._public_prefix,
            ahead=self._ahead,
            draft=self._draft,
            public_table=self._public_table,
        )

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a prompt and its continuation together."""
        return self._native.max_tokens

    def close(self) -> None:
        """Ends the session, and the text under way. A later call opens another."""
        self._native.close()


def messages_of(messages: Iterable[Mapping[str, str]]) -> List[Tuple[str, str]]:
    """Roles and contents; what is no message is refused by its place."""
    pairs = []
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise TypeError(f"message {place} (the first is 0) is not {{\"role\": …, \"content\": …}}")
        role, content = message["role"], message["content"]
        if not isinstance(role, str) or not isinstance(content, str):
            raise TypeError(f"message {place} (the first is 0) has a role or a content that is not a str")
        if not is_unicode(role) or not is_unicode(content):
            raise InputError(f"message {place} (the first is 0) is not Unicode", "text-refused")
        pairs.append((role, content))
    return pairs


class Drafted(NamedTuple):
    """What became of drafts: passes so far, the drafts that they had, and how many of these were right."""

    passes: int
    drafts: int
    right: int


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

    @property
    def top(self) -> List[int]:
        """The ids of the likeliest tokens of the pass that gave the last piece, its own first: as many as the server's
        operator opens, at least one; none before the first piece."""
        return self._native.top

    @property
    def drafted(self) -> Drafted:
        """What had become of drafts when the pass of the last piece had ended; zeros before the first piece."""
        return Drafted(*self._native.drafted)

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
