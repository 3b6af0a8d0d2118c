"""Arguments as the extension module takes them, and the environment variables that stand for them."""

import os
import warnings
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Union

from ._errors import InputError, UsageError

PathLike = Union[str, "os.PathLike[str]"]

#: Values that switch a flag of the command off.
_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")
#: More than any server makes ahead, or verifies in a pass.
_MOST_TOKENS = 65535
#: What this process has been warned of.
_WARNED: Set[str] = set()


class UnpinnedWarning(UserWarning):
    """The server may choose what decides the number of tokens of a text, which it sees."""


@dataclass(frozen=True)
class Connection:
    """How to reach a server, and what to insist on."""

    server: str
    pin: Optional[str]
    ca: Optional[PathLike]
    token_file: Optional[PathLike]
    cert: Optional[PathLike]
    key: Optional[PathLike]
    bundle: Optional[PathLike]
    cache_dir: Optional[PathLike]
    retry: int
    bundle_sha256: Optional[str]
    tokenizer_sha256: Optional[str]
    template_sha256: Optional[str]
    net: Optional[str]

    @classmethod
    def of(cls, server: Optional[str] = None, **given: Optional[PathLike]) -> "Connection":
        """What is given, else what the environment says. ``pin`` and ``ca`` exclude each other, and so do ``bundle`` and
        ``bundle_sha256``; one that is given wins over the other in the environment."""
        server = server or variable("HUSHED_SERVER")
        if not server:
            raise UsageError("which server? give server=\"HOST:PORT\", or set HUSHED_SERVER", "usage")
        if given["pin"] is None and given["ca"] is None:
            given.update(pin=variable("HUSHED_PIN"), ca=variable("HUSHED_CA"))
        if (given["pin"] is None) == (given["ca"] is None):
            raise UsageError(
                "give exactly one of pin= (the SHA-256 of the server's certificate, which it prints when it starts) and "
                "ca= (a PEM file of authorities), or of HUSHED_PIN and HUSHED_CA",
                "usage",
            )
        if given["cert"] is None and given["key"] is None:
            given.update(cert=variable("HUSHED_CLIENT_CERT"), key=variable("HUSHED_CLIENT_KEY"))
        if (given["cert"] is None) != (given["key"] is None):
            raise UsageError("cert= and key= go together: the client's certificate chain and its key", "usage")
        given = {**dict.fromkeys(("bundle_sha256", "tokenizer_sha256", "template_sha256", "net")), **given}
        if given["bundle"] is None and given["bundle_sha256"] is None:
            given.update(bundle=variable("HUSHED_BUNDLE"), bundle_sha256=variable("HUSHED_BUNDLE_SHA256"))
        if given["bundle"] is not None and given["bundle_sha256"] is not None:
            raise UsageError("give one of bundle= (a file) and bundle_sha256= (its hash), not both", "usage")
        for name in ("token_file", "cache_dir", "tokenizer_sha256", "template_sha256", "net"):
            if given[name] is None:
                given[name] = variable("HUSHED_" + name.upper())
        retry = whole(variable("HUSHED_RETRY") or "600", 0, "HUSHED_RETRY")
        return cls(server=server, retry=retry, **given)  # type: ignore[arg-type]

    def warn_if_unpinned(self, *, chats: bool = False) -> None:
        """Warns, once in a process, if the server may choose the tokenizer, or the template of conversations (``chats``)."""
        if self.bundle is not None or self.bundle_sha256 is not None:
            return
        if self.tokenizer_sha256 is None:
            chosen, of, pin = "tokenizer", "text", "tokenizer_sha256= (the SHA-256 of the published tokenizer.json)"
        elif chats and self.template_sha256 is None:
            chosen, of, pin = "chat template", "conversation", "template_sha256="
        else:
            return
        if chosen not in _WARNED:
            _WARNED.add(chosen)
            warnings.warn(
                f"the server chose the {chosen}: the number of tokens, which it sees, can be any function of the {of}; pin it "
                f"with {pin}, or the whole model with bundle_sha256=",
                UnpinnedWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class How:
    """How texts are run."""

    batch: int
    bucket: Optional[int]
    truncate: bool
    public_table: bool


@dataclass(frozen=True)
class Batching:
    """Where a batch under encryption goes, and with which keys."""

    connection: Connection
    keys: PathLike
    manifest: Optional[PathLike]
    public: Optional[PathLike]
    make_keys: bool
    days: int
    max_keys: int
    max_key_bytes: int
    truncate: bool
    lengths: Optional[str]
    wanted: Optional[str] = None


@dataclass(frozen=True)
class Penalties:
    """What is added to logits and taken from them."""

    presence: float
    frequency: float
    logit_bias: Dict[int, float]

    @classmethod
    def of(cls, presence: float, frequency: float, logit_bias: Optional[Mapping[int, float]]) -> "Penalties":
        """Of arguments; ranges are the extension module's affair."""
        biases = {at_least(0, id, "a token's id"): float(bias) for id, bias in (logit_bias or {}).items()}
        return cls(float(presence), float(frequency), biases)


@dataclass(frozen=True)
class Wanted:
    """How a text is continued."""

    max_tokens: int
    temperature: float
    seed: Optional[int]
    penalties: Penalties
    stop: List[str]
    bucket: Optional[int]
    pad_output: bool
    public_prefix: Optional[PathLike]
    ahead: int
    draft: int
    public_table: bool


@dataclass(frozen=True)
class Serving:
    """What to serve, and to whom."""

    folder: PathLike
    certificates: PathLike
    port: int
    tokens: Optional[PathLike]
    max_sessions: int
    max_tokens: Optional[int]
    max_pass_tokens: int
    max_texts: int
    public_table: bool
    index: Optional[PathLike]
    search_scores: bool
    public_prefix: Optional[PathLike]
    max_ahead: int
    max_drafts: int
    answers: Optional[str]


def variable(name: str) -> Optional[str]:
    """An environment variable; an empty one counts as not set."""
    return os.environ.get(name) or None


def flag(given: Optional[bool], name: str) -> bool:
    """A switch: what is given, else the variable, read as the command reads it."""
    if given is not None:
        return bool(given)
    value = os.environ.get(name, "").lower()
    if value not in _ON + _OFF:
        raise UsageError(f"{name} is {value!r}, and true, false, 1 or 0 is expected", "usage")
    return value in _ON


def at_least(least: int, value: object, name: str) -> int:
    """A whole number from ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    number = int(value.__index__())
    if number < least:
        raise UsageError(f"{name}={number}: a whole number from {least} is expected", "limit")
    return number


def tokens_of(given: int, name: str) -> int:
    """A number of tokens that the extension module takes; client and server lower it to what they allow."""
    return min(at_least(0, given, name), _MOST_TOKENS)


def later_tokens(given: Optional[int], name: str) -> int:
    """Tokens whose products are made ahead, or that are guessed for a pass: what is given, else the variable of this
    name, else none."""
    if given is None:
        name_of = f"HUSHED_{name.upper()}"
        text = variable(name_of)
        given = 0 if text is None else whole(text, 0, name_of)
    return tokens_of(given, name)


def bucket_of(given: Optional[int]) -> Optional[int]:
    """The bucket: what is given, else HUSHED_BUCKET."""
    if given is not None:
        return at_least(1, given, "bucket")
    text = variable("HUSHED_BUCKET")
    if text is None:
        return None
    return whole(text, 1, "HUSHED_BUCKET")


def whole(text: str, least: int, name: str) -> int:
    """A variable that is a whole number."""
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name} is not a whole number from {least}", "usage")
    return at_least(least, int(text), name)


def is_unicode(text: str) -> bool:
    """Whether the text has a UTF-8 form. The exception of one that has none holds the text, so it ends here."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def texts_of(sentences: Iterable[Any], prefix: str = "") -> List[str]:
    """The texts behind their prompt; anything else in the list is refused by its place."""
    if isinstance(sentences, (bytes, bytearray, Mapping)) or not hasattr(sentences, "__iter__"):
        raise TypeError(f"texts are a str or a list of str, not {type(sentences).__name__}")
    # A table gives the names of its columns, which are texts as well. A single column (a Series) has keys, too.
    if hasattr(sentences, "columns") or (hasattr(sentences, "keys") and getattr(sentences, "ndim", None) != 1):
        raise TypeError(f"texts are a str or a list of str, not {type(sentences).__name__}: give one column of it")
    texts = []
    for place, text in enumerate(sentences):
        if not isinstance(text, str):
            raise TypeError(f"text {place} (the first is 0) is not a str but {type(text).__name__}")
        text = prefix + text
        if not is_unicode(text):
            raise InputError(f"text {place} (the first is 0) has half of a surrogate pair: it is not Unicode", "text-refused")
        texts.append(text)
    return texts


def close_quietly(native: Any) -> None:
    """Ends a session when its owner is collected; whoever could care about an error is gone."""
    try:
        native.close()
    except Exception:
        pass
