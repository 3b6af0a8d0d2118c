"""Functions of one number, found by their values: exporters write a GELU as five nodes, in several orders."""

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

#: ONNX's operations number by number. What they are, alone or in a row, shows at POINTS.
ELEMENTWISE = frozenset(
    "Abs Add Ceil Celu Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Mul Neg "
    "Pow PRelu Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Swish Tanh ThresholdedRelu".split()
)
_LARGE = np.logspace(1, 30, 59)
#: Where functions are compared: densely where they bend, and far outside, where one with a bound differs.
POINTS = np.concatenate([-_LARGE[::-1], np.linspace(-10, 10, 1001), _LARGE])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    half: np.ndarray = np.tanh(x / 2) / 2
    return half + 0.5


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    values: np.ndarray = x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return values


#: The operations of a graph that are functions of one number, with their attributes.
_FUNCTIONS: List[Tuple[str, Dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("ReLU", {}, lambda x: np.maximum(x, 0)),
    ("GELU", {}, lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2),
    ("GELU", {"approximate": "tanh"}, _gelu_tanh),
    ("SiLU", {}, lambda x: x * _sigmoid(x)),
    ("ELU", {}, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    ("Tanh", {}, np.tanh),
    ("Sigmoid", {}, _sigmoid),
    ("Exp", {}, np.exp),
    ("Square", {}, np.square),
]
with np.errstate(over="ignore"):
    _VALUES = [(op, attributes, function(POINTS)) for op, attributes, function in _FUNCTIONS]


def known(numbers: np.ndarray) -> Optional[Tuple[str, Dict[str, Any]]]:
    """The operation, with its attributes, whose values at POINTS these are. A model's constants have 24 bits."""
    for op, attributes, values in _VALUES:
        with np.errstate(all="ignore"):
            near = np.abs(numbers - values) <= 1e-6 * (1 + np.abs(values))
        # Beyond the largest float a function is infinite, to which no number is near.
        if np.where(np.isfinite(values), near, numbers == values).all():
            return op, dict(attributes)
    return None
