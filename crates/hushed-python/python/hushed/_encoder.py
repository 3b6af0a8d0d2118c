"""A client with the signature of sentence-transformers."""

import contextlib
import functools
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _native
from ._cost import Cost
from ._errors import UsageError, unsupported
from ._progress import Bar
from ._session import TextSession
from ._settings import Connection, How, PathLike, at_least, close_quietly, texts_of

Texts = Union[str, Iterable[str]]

#: Names under which models keep the prompts of queries and of documents, as in sentence-transformers.
_QUERY = ("query",)
_DOCUMENT = ("document", "passage", "corpus")


class _Compared:
    """A method of an encoder that compares embeddings by its model's similarity, and by the cosine on the class."""

    def __init__(self, pairwise: bool, doc: str) -> None:
        self._pairwise = pairwise
        self.__doc__ = doc

    def __get__(
        self, encoder: Optional["SentenceEncoder"], owner: Any = None
    ) -> "Callable[[Any, Any], np.ndarray[Any, np.dtype[np.float32]]]":
        name = "cosine" if encoder is None else encoder.similarity_fn_name
        return functools.partial(_compared, name, self._pairwise)


class SentenceEncoder(TextSession):
    """Embeddings of texts by a server that sees neither the texts nor the embeddings.

    The server learns how many texts there are, the number of tokens of each (rounded up with ``bucket``) and when they
    come. ``server``, ``pin`` (or ``ca``) and the files may also come from the environment, as for the command:
    ``HUSHED_SERVER``, ``HUSHED_PIN``, ``HUSHED_CA``, ``HUSHED_TOKEN_FILE``, ``HUSHED_CLIENT_CERT``,
    ``HUSHED_CLIENT_KEY``, ``HUSHED_BUNDLE``, ``HUSHED_BUNDLE_SHA256``, ``HUSHED_TOKENIZER_SHA256``, ``HUSHED_CACHE_DIR``, ``HUSHED_BUCKET``, ``HUSHED_TRUNCATE``,
    ``HUSHED_PUBLIC_TABLE``. docs/python.md has every argument.

    Threads may share an encoder; their calls run one after the other. It cannot be pickled, and refuses to work in a
    process that was forked from its own.
    """

    #: The similarity that the model is for: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``, as its folder says.
    similarity_fn_name: str = "cosine"

    similarity = _Compared(
        False, "The similarity of every embedding of the first list to every one of the second: (n, m). Computed here."
    )
    similarity_pairwise = _Compared(
        True, "The similarity of each embedding of the first list to the one at its place in the second: (n,)."
    )

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
        prompts: Optional[Mapping[str, str]] = None,
        truncate_dim: Optional[int] = None,
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
        self._native: _native.Encoder = _native.Encoder(connection)
        self._finalizer = weakref.finalize(self, close_quietly, self._native)
        self._prompts: Dict[str, str] = dict(self._native.prompts if prompts is None else prompts)
        self.similarity_fn_name = self._native.similarity
        #: Numbers that are kept of every embedding, the first ones; ``None``: all.
        self.truncate_dim = truncate_dim if truncate_dim is None else at_least(1, truncate_dim, "truncate_dim")
        self._cost: Optional[Cost] = None
        self._cost_lock = threading.Lock()

    def encode(
        self,
        inputs: Optional[Texts] = None,
        prompt_name: Optional[str] = None,
        prompt: Optional[str] = None,
        batch_size: int = 8,
        show_progress_bar: Optional[bool] = False,
        output_value: Optional[str] = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: Optional[int] = None,
        pool: Any = None,
        chunk_size: Optional[int] = None,
        *,
        sentences: Optional[Texts] = None,
    ) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """The embeddings of the texts: float32, of shape (d,) for one ``str`` and (n, d) otherwise.

        Arguments are those of ``SentenceTransformer.encode``; what is not supported raises a :class:`UsageError` that
        names it. ``sentences`` is the older name of ``inputs``. ``batch_size`` is the most texts that share a pass. Texts run longest first; the answers are in the
        order of the texts. All texts are checked before the first is run.
        """
        _refuse(output_value, precision, convert_to_numpy, convert_to_tensor, device, pool, chunk_size)
        given = _one(inputs, sentences)
        single = isinstance(given, str)
        texts = texts_of([given] if isinstance(given, str) else given, self._prefix(prompt_name, prompt))
        how = self._how(batch_size)
        numbers, cost = self._run(texts, how, bool(show_progress_bar))
        with self._cost_lock:
            self._cost = Cost(**cost)
        shape = (len(texts), self._native.width)
        vectors: "np.ndarray[Any, np.dtype[np.float32]]" = np.frombuffer(numbers, dtype=np.float32).reshape(shape)
        truncate_dim = self.truncate_dim if truncate_dim is None else truncate_dim
        if truncate_dim is not None:
            vectors = vectors[:, : at_least(1, truncate_dim, "truncate_dim")]
        if normalize_embeddings:
            vectors = _unit(vectors)
        return vectors.ravel() if single else vectors

    def encode_query(self, inputs: Optional[Texts] = None, **options: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """As :meth:`encode`, with the model's prompt for queries, if it has one."""
        return self.encode(inputs, **self._with_prompt(options, _QUERY))

    def encode_document(self, inputs: Optional[Texts] = None, **options: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """As :meth:`encode`, with the model's prompt for documents, if it has one."""
        return self.encode(inputs, **self._with_prompt(options, _DOCUMENT))

    @property
    def last_cost(self) -> Optional[Cost]:
        """What the last call that ended cost; ``None`` before the first."""
        with self._cost_lock:
            return self._cost

    def get_embedding_dimension(self) -> int:
        """Numbers of an embedding."""
        width = self._native.width
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    def get_sentence_embedding_dimension(self) -> int:
        """The older name of :meth:`get_embedding_dimension`."""
        return self.get_embedding_dimension()

    @contextlib.contextmanager
    def truncate_embeddings(self, truncate_dim: Optional[int]) -> Iterator[None]:
        """Inside the ``with``, embeddings have only their first ``truncate_dim`` numbers."""
        before = self.truncate_dim
        self.truncate_dim = truncate_dim if truncate_dim is None else at_least(1, truncate_dim, "truncate_dim")
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_sentence_embeddings = truncate_embeddings

    def tokenize(self, texts: Iterable[str]) -> Dict[str, List[List[int]]]:
        """The tokens of the texts as :meth:`encode` has them, computed here: ``input_ids`` and ``attention_mask``, lists
        of the texts' own lengths. Nothing is sent."""
        ids = self._native.tokenize(texts_of([texts] if isinstance(texts, str) else texts), self._truncate)
        return {"input_ids": ids, "attention_mask": [[1] * len(one) for one in ids]}

    preprocess = tokenize

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a text, the two special ones counted, that model and server take. Longer texts are refused,
        or truncated with ``truncate=True``."""
        return self._native.max_tokens

    def get_max_seq_length(self) -> int:
        """The older name of :attr:`max_seq_length`."""
        return self.max_seq_length

    @property
    def prompts(self) -> Dict[str, str]:
        """The prompts by their names: the model's, or those that were given."""
        return dict(self._prompts)

    def _run(self, texts: List[str], how: How, show: bool) -> Tuple[bytearray, "_native._Cost"]:
        if not show:
            return self._native.encode(texts, how, None)
        bar = Bar(len(texts))
        try:
            return self._native.encode(texts, how, bar)
        finally:
            bar.close()

    def _prefix(self, prompt_name: Optional[str], prompt: Optional[str]) -> str:
        """The prompt that is asked for. As in sentence-transformers, ``prompt`` wins."""
        if prompt is None and prompt_name is not None:
            if prompt_name not in self._prompts:
                names = ", ".join(sorted(self._prompts)) or "none"
                raise UsageError(f"prompt_name={prompt_name!r}: the prompts here are {names}", "usage")
            prompt = self._prompts[prompt_name]
        if prompt and not self._native.pools_prompts:
            raise unsupported("prompt", "this model leaves the prompt out of its pooling")
        return prompt or ""

    def _with_prompt(self, options: Dict[str, Any], names: Tuple[str, ...]) -> Dict[str, Any]:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt_name"] = next((name for name in names if name in self._prompts), None)
        return options


def _one(inputs: Optional[Texts], sentences: Optional[Texts]) -> Texts:
    """The texts, under their newer or their older name."""
    if (inputs is None) == (sentences is None):
        raise TypeError("texts are a str or a list of str: give inputs= or, by its older name, sentences=")
    return sentences if inputs is None else inputs  # type: ignore[return-value]


def _refuse(
    output_value: Optional[str],
    precision: str,
    convert_to_numpy: bool,
    convert_to_tensor: bool,
    device: Any,
    pool: Any,
    chunk_size: Optional[int],
) -> None:
    """Raises for arguments of sentence-transformers that have no meaning here."""
    if output_value != "sentence_embedding":
        raise unsupported(f"output_value={output_value!r}", "only the sentence's embedding is revealed")
    if precision != "float32":
        raise unsupported(f"precision={precision!r}", "embeddings are float32; convert them afterwards")
    if convert_to_tensor:
        raise unsupported("convert_to_tensor=True", "this package needs no torch; use torch.from_numpy")
    if not convert_to_numpy:
        raise unsupported("convert_to_numpy=False", "embeddings are one numpy array")
    if device is not None and str(device) != "cpu":
        raise unsupported(f"device={str(device)!r}", "the server computes")
    if pool is not None:
        raise unsupported("pool", "use several encoders, each in a process of its own")
    if chunk_size is not None:
        raise unsupported("chunk_size", "it belongs to pool")


def _compared(
    name: str, pairwise: bool, embeddings1: Any, embeddings2: Any
) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """Similarities by this name, all or pairwise; a distance is negative, so that more is nearer."""
    first, second = _rows(embeddings1), _rows(embeddings2)
    if pairwise and first.shape != second.shape:
        raise UsageError(f"pairs need lists of one shape, not {first.shape} and {second.shape}", "usage")
    if name == "cosine":
        first, second = _unit(first), _unit(second)
    if name in ("cosine", "dot"):
        found = np.einsum("nd,nd->n", first, second) if pairwise else first @ second.T
    else:
        order = {"euclidean": 2, "manhattan": 1}[name]
        if pairwise:
            found = -np.linalg.norm(first - second, ord=order, axis=1)
        else:
            found = np.empty((len(first), len(second)), dtype=np.float32)
            for place, row in enumerate(first):  # a row at a time: all differences at once may not fit in memory
                found[place] = -np.linalg.norm(row - second, ord=order, axis=1)
    return np.asarray(found, dtype=np.float32)


def _rows(embeddings: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
    rows = np.atleast_2d(np.asarray(embeddings, dtype=np.float32))
    if rows.ndim != 2:
        raise UsageError(f"embeddings have the shape (d,) or (n, d), not {rows.shape}", "usage")
    return rows


def _unit(vectors: "np.ndarray[Any, np.dtype[np.float32]]") -> "np.ndarray[Any, np.dtype[np.float32]]":
    """Each row scaled to length one; a row of zeros stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
