"""Private embeddings: the server sees neither the texts nor the answers.

>>> enc = hushed.SentenceEncoder("127.0.0.1:7450", pin="9f86d0…")
>>> enc.encode(["a private question"]).shape
(1, 384)
"""

from ._batch import BatchEncoder, JobStatus
from ._classifier import Classifier
from ._cost import Cost
from ._cross_encoder import CrossEncoder
from ._decoder import BatchDecoder, Choice, Likelihood, NextToken
from ._encoder import SentenceEncoder
from ._errors import (
    DefectError,
    FolderError,
    HushedError,
    InputError,
    LocalError,
    MismatchError,
    NetworkError,
    RefusedError,
    UsageError,
)
from ._generator import Drafted, Generation, Generator
from ._network import Compiled, compile
from ._plan import plan
from ._searcher import Hit, Searcher
from ._server import Server, serve
from ._settings import UnpinnedWarning
from .nn import from_onnx, from_torch

__all__ = [
    "BatchDecoder",
    "BatchEncoder",
    "Choice",
    "Classifier",
    "Compiled",
    "Cost",
    "CrossEncoder",
    "DefectError",
    "Drafted",
    "FolderError",
    "Generation",
    "Generator",
    "Hit",
    "HushedError",
    "InputError",
    "JobStatus",
    "Likelihood",
    "LocalError",
    "MismatchError",
    "NetworkError",
    "NextToken",
    "RefusedError",
    "Searcher",
    "SentenceEncoder",
    "Server",
    "UnpinnedWarning",
    "UsageError",
    "compile",
    "from_onnx",
    "from_torch",
    "plan",
    "serve",
]
