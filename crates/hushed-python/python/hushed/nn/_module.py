"""``Module``: parts by name, their weights, and how a call is written down as nodes."""

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple, Union

import numpy as np

from .._errors import UsageError
from ._network import Network, PathLike, Value, array

#: Shapes of the inputs without a batch dimension: of the only one, or by the names of the arguments of ``forward``.
Shapes = Union[Sequence[int], Mapping[str, Sequence[int]]]


class Module:
    """A part of a network, as ``torch.nn.Module``: other modules are its attributes, and ``forward`` calls them.

    ``forward`` gets values to be written down, never numbers. It may call modules, add, subtract and multiply values,
    and ``flatten`` and ``reshape`` them.
    """

    #: The names of its own weights; ``None`` for those without numbers so far.
    _weights: Tuple[str, ...] = ()

    def __init__(self) -> None:
        self._numbers: Dict[str, np.ndarray] = {}

    def forward(self, *inputs: Value) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *inputs: Value) -> Any:
        for value in inputs:
            if not isinstance(value, Value):
                raise TypeError(
                    f"a module takes values of a network, not {type(value).__name__}: save the network, and "
                    "`hushed clear` computes its answers"
                )
        return self.forward(*inputs)

    def named_children(self) -> Iterator[Tuple[str, "Module"]]:
        """The modules that are attributes, in the order in which they were set."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def named_modules(self, prefix: str = "") -> Iterator[Tuple[str, "Module"]]:
        """This module and all inside it, with names like ``block.conv1``."""
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def state_dict(self) -> Dict[str, np.ndarray]:
        """The weights that have numbers, by name."""
        return {
            _joined(prefix, name): value
            for prefix, module in self.named_modules()
            for name, value in module._numbers.items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Takes the weights: arrays of numpy or tensors of torch, under torch's names.

        With ``strict`` all weights must be there and no others. Shapes are checked by ``hushed check``.
        """
        places = {
            _joined(prefix, name): (module, name) for prefix, module in self.named_modules() for name in module._weights
        }
        # torch counts its batches; no answer depends on it.
        given = {name: value for name, value in state_dict.items() if not name.endswith("num_batches_tracked")}
        missing, left = sorted(places.keys() - given.keys()), sorted(given.keys() - places.keys())
        if strict and (missing or left):
            lists = [f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("unexpected", left)) if names]
            raise UsageError(f"the weights are not those of this network; {'; '.join(lists)}", "usage")
        for name in places.keys() & given.keys():
            module, own = places[name]
            module._numbers[own] = array(given[name])

    def trace(self, inputs: Shapes) -> Network:
        """Calls ``forward`` once and writes down what it does."""
        network = Network()
        names = {id(module): name for name, module in self.named_modules()}
        _traced.append(names)
        try:
            shapes = inputs if isinstance(inputs, Mapping) else {"x": inputs}
            values = [network.input(name, shape) for name, shape in shapes.items()]
            answer = self(*values)
        finally:
            _traced.pop()
        for value in [answer] if isinstance(answer, Value) else answer:
            network.output(value)
        used = network._used()
        called = {node.get("weights", node["name"]) for node in network.nodes if node["name"] in used}
        missing: List[str] = []
        for prefix, module in self.named_modules():
            # Weights that no answer depends on are left out.
            for name in module._weights if (prefix or type(module).__name__.lower()) in called else ():
                if name in module._numbers:
                    network.weights[_weight(prefix, module, name)] = module._numbers[name]
                else:
                    missing.append(_joined(prefix, name))
        if missing:
            raise UsageError(f"weights without numbers: {', '.join(missing)}; load_state_dict gives them", "usage")
        return network

    def save(self, folder: PathLike, inputs: Shapes) -> None:
        """Writes the folder that ``hushed check`` and ``hushed clear`` take.

        ``inputs`` is the shape of the input without a batch dimension, ``(64,)`` or ``(1, 28, 28)``; of several, a dict
        from the arguments' names to shapes.
        """
        self.trace(inputs).save(folder)


#: The names of the modules of the networks that are being traced, the innermost last.
_traced: List[Dict[int, str]] = []


def name_of(module: Module) -> str:
    """The name of a module inside the network that is traced; of a network that is one layer, its class."""
    names = _traced[-1] if _traced else {}
    return names.get(id(module)) or type(module).__name__.lower()


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _weight(prefix: str, module: Module, name: str) -> str:
    return f"{prefix or type(module).__name__.lower()}.{name}"
