"""What a conversion reports: all parts without an operation at once, each with what to use in its place."""

import importlib
from typing import Any, Dict

from .._errors import UsageError

#: By the beginning of torch's or ONNX's name, in lower case and without underscores. ``hushed check`` says the same
#: of a ``graph.json`` that was written by hand.
_INSTEAD = {
    "maxpool": "use AvgPool2d",
    "leakyrelu": "use Interp, with a table of points",
    "hardswish": "use SiLU, or Interp with a table of points",
    "conv1d": "use Conv2d with a kernel of one row",
    "softmax": "leave it out, as the largest number stays the largest",
    "logsoftmax": "leave it out, as the largest number stays the largest",
}


class Faults:
    """The parts of a model that have no operation, in its order; ``model`` is what the report calls it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._entries: Dict[str, None] = {}

    def add(self, name: str, op: str, why: Any = "") -> None:
        """A part by its name in the model. Without ``why`` the report says what to use in place of ``op``."""
        why = str(why) or instead(op)
        self._entries[f"{name}: {op}" + (f" ({why})" if why else "")] = None

    def end(self) -> None:
        """Raises :class:`hushed.UsageError` with all of them, if there are any."""
        if self._entries:
            listed = "".join(f"\n  - {entry}" for entry in self._entries)
            raise UsageError(f"the {self.model} has parts without an operation (docs/networks.md):{listed}", "usage")


def instead(op: str) -> str:
    """What to use in place of an operation; empty if nothing is known."""
    plain = op.replace("_", "").lower()
    return next((use for start, use in _INSTEAD.items() if plain.startswith(start)), "")


def needed(package: str) -> Any:
    """A package that only a conversion needs."""
    try:
        return importlib.import_module(package)
    except ImportError as fault:
        whole = package.partition(".")[0]
        raise UsageError(f"this needs the package {whole} ({fault}): pip install --upgrade {whole}", "usage") from fault
