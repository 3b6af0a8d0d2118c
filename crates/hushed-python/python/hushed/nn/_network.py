"""A network as a list of nodes with their weights, and the folder that it is written to."""

import json
import os
import pathlib
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from .._errors import UsageError

PathLike = Union[str, "os.PathLike[str]"]
#: The version of ``graph.json``.
VERSION = 1


class Network:
    """Nodes and weights: what :meth:`hushed.nn.Module.trace` and :func:`hushed.nn.from_torch` give.

    ``nodes`` are the entries of ``graph.json``, ``weights`` the arrays of ``model.safetensors`` by name.
    """

    #: The name of nodes that are no module's, in place of that of their operation.
    label: Optional[str] = None

    def __init__(self) -> None:
        self.inputs: List[Dict[str, Any]] = []
        self.nodes: List[Dict[str, Any]] = []
        self.outputs: List[Dict[str, Any]] = []
        self.weights: Dict[str, np.ndarray] = {}

    def input(self, name: str, shape: Sequence[int]) -> "Value":
        """A value that is given; its shape is without a batch dimension."""
        name = self._unused(name)
        self.inputs.append({"name": name, "shape": [int(size) for size in shape]})
        return Value(self, name)

    def node(
        self, name: str, op: str, inputs: Sequence["Value"], attributes: Mapping[str, Any], weights: Optional[str] = None
    ) -> "Value":
        """Adds a node. ``weights`` is what its tensors are named by, if it has any."""
        name = self._unused(name)
        node: Dict[str, Any] = {"name": name, "op": op, "inputs": [value.name for value in inputs]}
        if attributes:
            node["attributes"] = dict(attributes)
        if weights not in (None, name):
            node["weights"] = weights
        self.nodes.append(node)
        return Value(self, name)

    def constant(self, name: str, value: Any) -> "Value":
        """A value that is stored: an array of numpy or a tensor of torch, without a batch dimension."""
        numbers = array(value)
        constant = self.node(name, "Constant", [], {"shape": list(numbers.shape)})
        self.weights[f"{constant.name}.value"] = numbers
        return constant

    def output(self, value: "Value", shape: Optional[Sequence[int]] = None) -> None:
        """The value is part of the answer. ``hushed check`` compares a shape that is given with its own."""
        output: Dict[str, Any] = {"name": value.name}
        if shape is not None:
            output["shape"] = [int(size) for size in shape]
        self.outputs.append(output)

    def with_degree(self, degree: int) -> "Network":
        """Sets the degree of the polynomials under encryption for functions that have none; returns the network."""
        from . import _layers

        for node in self.nodes:
            if "degree" in getattr(_layers, node["op"], _layers.Layer)._attributes:
                node.setdefault("attributes", {}).setdefault("degree", int(degree))
        return self

    def save(self, folder: PathLike) -> None:
        """Writes ``graph.json`` and ``model.safetensors`` to the folder, which is made if it is missing."""
        self.drop_unused()
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # An older graph does not stay beside newer weights.
        (folder / "graph.json").unlink(missing_ok=True)
        (folder / "model.safetensors").write_bytes(safetensors(self.weights))
        (folder / "graph.json").write_text(_json(inputs=self.inputs, nodes=self.nodes, outputs=self.outputs))

    def drop_unused(self) -> None:
        """Drops the nodes that no output depends on, and their weights."""
        used = self._used()
        self.nodes = [node for node in self.nodes if node["name"] in used]
        owners = {node.get("weights", node["name"]) for node in self.nodes}
        self.weights = {name: value for name, value in self.weights.items() if name.rpartition(".")[0] in owners}

    def rename(self, value: "Value", name: str) -> None:
        """Names the node of a value, unless another has the name. Its weights keep theirs."""
        (node,) = (node for node in self.nodes if node["name"] == value.name)
        name = value.name if name == value.name else self._unused(name)
        if any(weight.rpartition(".")[0] == value.name for weight in self.weights):
            node.setdefault("weights", value.name)
        for reader in self.nodes:
            reader["inputs"] = [name if read == value.name else read for read in reader["inputs"]]
        value.name = node["name"] = name

    def _used(self) -> "set[str]":
        """The nodes that an output depends on."""
        reads = {node["name"]: node["inputs"] for node in self.nodes}
        used, left = set(), [output["name"] for output in self.outputs]
        while left:
            name = left.pop()
            if name not in used:
                used.add(name)
                left.extend(reads.get(name, ()))
        return used

    def _unused(self, name: str) -> str:
        taken = {entry["name"] for entry in (*self.inputs, *self.nodes)}
        count, unused = 1, name
        while unused in taken:
            count += 1
            unused = f"{name}.{count}"
        return unused


class Value:
    """A value of a network that is being written down: modules take it, and it can be added, multiplied and reshaped."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name

    def __add__(self, other: Union["Value", float]) -> "Value":
        return self._with("Add", other)

    def __mul__(self, other: Union["Value", float]) -> "Value":
        return self._with("Mul", other)

    def __neg__(self) -> "Value":
        return self * -1.0

    def __sub__(self, other: Union["Value", float]) -> "Value":
        return self + -other

    def __rsub__(self, other: float) -> "Value":
        return -self + other

    def __truediv__(self, other: float) -> "Value":
        return self * (1.0 / _number(other))

    def __pow__(self, power: int) -> "Value":
        if power != 2:
            raise UsageError(f"x ** {power!r} is not supported: 2 is the only power", "usage")
        return self._node("Square", [self], {})

    __radd__ = __add__
    __rmul__ = __mul__

    def exp(self, *, degree: Optional[int] = None) -> "Value":
        """As ``torch.exp``; ``degree`` is that of the polynomial in its place under encryption."""
        return self._node("Exp", [self], {} if degree is None else {"degree": int(degree)})

    def mean(self, dim: Union[int, Sequence[int]], keepdim: bool = False) -> "Value":
        """As ``torch.mean`` over one or several dimensions; dimension 0 is the batch."""
        dims = [dim] if isinstance(dim, int) else [int(one) for one in dim]
        return self._node("Mean", [self], {"dim": dims, "keepdim": bool(keepdim)})

    def flatten(self, start_dim: int = 1, end_dim: int = -1) -> "Value":
        """As ``torch.flatten``: dimension 0 is the batch."""
        return self._node("Flatten", [self], {"start_dim": start_dim, "end_dim": end_dim})

    def reshape(self, *shape: int) -> "Value":
        """The numbers under another shape, which has no batch dimension; one size may be -1."""
        return self._node("Reshape", [self], {"shape": [int(size) for size in shape]})

    def _with(self, op: str, other: Union["Value", float]) -> "Value":
        if isinstance(other, Value):
            return self._node(op, [self, other], {})
        return self._node(op, [self], {"value": _number(other)})

    def _node(self, op: str, inputs: Sequence["Value"], attributes: Mapping[str, Any]) -> "Value":
        return self.network.node(self.network.label or op.lower(), op, inputs, attributes)


def cat(tensors: Sequence[Value], dim: int) -> Value:
    """As ``torch.cat``: values one after another along a dimension; dimension 0 is the batch."""
    first = tensors[0]
    return first.network.node(first.network.label or "concat", "Concat", tensors, {"dim": int(dim)})


def _json(**lists: Sequence[Mapping[str, Any]]) -> str:
    """The graph, with one entry on a line."""
    lines = [f'{{"version": {VERSION}']
    for name, entries in lists.items():
        listed = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in entries)
        lines.append(f'"{name}": [\n  {listed}\n]')
    return ",\n".join(lines) + "}\n"


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"a value of a network or a number was expected, not {type(value).__name__}") from None


def array(value: Any) -> np.ndarray:
    """The numbers of a numpy array or a tensor of torch, as float32."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        value = detach().cpu().float().numpy()
    return np.ascontiguousarray(value, dtype="<f4")


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file of safetensors: the length of a header in JSON, the header, the numbers."""
    header: Dict[str, Any] = {}
    at = 0
    arrays = {name: array(value) for name, value in sorted(tensors.items())}
    for name, value in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    # Numbers begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(value.tobytes() for value in arrays.values())])
