"""What a reader of ONNX knows of a value."""

from typing import Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import UsageError
from ._elementwise import POINTS
from ._network import Value

#: As many values of which an element-wise one is known as a function. A GELU in parts is five nodes, its tanh form
#: eight.
_ROOTS = 12


class Act:
    """A value that depends on an input."""

    def __init__(self, shape: Sequence[int], elem: int) -> None:
        #: With the batch.
        self.shape = tuple(shape)
        #: ONNX's number of its type.
        self.elem = elem
        #: None where a node has no operation.
        self.value: Optional[Value] = None
        #: Why there is no value so far; reported if one is needed. Empty where that has been reported.
        self.faults: List[Tuple[str, str, str]] = []
        #: Values of which it is a function, number by number, and that function at POINTS.
        self.roots: Dict["Act", np.ndarray] = {}

    def is_root(self) -> "Act":
        self.roots = {**dict(list(self.roots.items())[1 - _ROOTS :]), self: POINTS}
        return self


#: Of a constant its numbers; of an operand that is left out or that was lost, None.
Operand = Union[Act, np.ndarray, None]


class Lost(Exception):
    """It reads a value that has been reported."""


def constant(operand: Operand, otherwise: str) -> np.ndarray:
    if not isinstance(operand, np.ndarray):
        raise UsageError(otherwise, "usage")
    return operand


def act_of(operand: Operand) -> Act:
    if not isinstance(operand, Act):
        raise UsageError("its first operand depends on no input", "usage")
    return operand


def number_of(numbers: np.ndarray) -> Optional[float]:
    """The number that all of them are, if they are one."""
    if numbers.size == 0 or numbers.dtype.kind not in "fiu" or not (numbers == numbers.flat[0]).all():
        return None
    return float(numbers.flat[0])
