"""The operations of ONNX that are layers, and those that change a shape."""

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import numpy as np

from .._errors import UsageError
from . import _layers
from ._network import Network, Value, array, cat
from ._onnx_file import OnnxFile, attributes_of_node
from ._onnx_values import Act, Lost, Operand, act_of, constant


class Writer:
    """Writes nodes of ONNX to a network."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.written = Network()

    def value(self, operand: Operand) -> Value:
        """The value that a node reads."""
        value = act_of(operand).value
        if value is None:
            raise Lost
        return value

    # Operations with weights.

    def _gemm(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **attributes_of_node(node)}
        x, weight, bias = [*operands, None][:3]
        if given["transA"]:
            raise UsageError("the value that it reads is transposed", "usage")
        weight = constant(weight, "a product of two values")
        weight = given["alpha"] * (weight if given["transB"] else weight.T)
        if bias is not None:
            bias = given["beta"] * constant(bias, "a sum with another value")
            if bias.ndim > 1 and bias.shape[0] != 1:
                raise UsageError("a constant differs along the batch", "usage")
            bias = np.broadcast_to(bias, (1, len(weight)))[0]
        return self._linear(node, x, weight, bias)

    def _matmul(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        x, weight = operands
        weight = constant(weight, "a product of two values")
        if not isinstance(x, Act) or len(x.shape) < 2 or weight.ndim != 2:
            raise UsageError("the second factor has to be a matrix, and the first a value", "usage")
        return self._linear(node, x, weight.T, None)

    def _linear(self, node: Any, x: Operand, weight: np.ndarray, bias: Optional[np.ndarray]) -> Value:
        layer = _layers.Linear(weight.shape[1], weight.shape[0], bias is not None)
        return self._layer(node, layer, x, {"weight": weight, "bias": bias})

    def _conv(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        x, weight, bias = [*operands, None][:3]
        weight = constant(weight, "weights that depend on an input")
        bias = None if bias is None else constant(bias, "a bias that depends on an input")
        if weight.ndim != 4:
            raise UsageError("use Conv2d; of one dimension, with a kernel of one row", "usage")
        groups = attributes_of_node(node).get("group", 1)
        window = self._window(node, x, act, weight.shape[2:])
        layer = _layers.Conv2d(weight.shape[1] * groups, len(weight), bias=bias is not None, groups=groups, **window)
        return self._layer(node, layer, x, {"weight": weight, "bias": bias})

    def _batch_norm(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        names = ("weight", "bias", "running_mean", "running_var")
        if attributes_of_node(node).get("training_mode"):
            raise UsageError("it is in training mode: export the model for inference", "usage")
        tensors = {name: constant(given, "weights that depend on an input") for name, given in zip(names, operands[1:])}
        kind = _layers.BatchNorm1d if len(act.shape) < 4 else _layers.BatchNorm2d
        layer = kind(len(tensors["weight"]), attributes_of_node(node).get("epsilon", 1e-5))
        return self._layer(node, layer, operands[0], tensors)

    def _norm(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        given = {"axis": -1, "epsilon": 1e-5, **attributes_of_node(node)}
        if given["axis"] % len(act.shape) == 0:
            raise UsageError("a mean over the batch", "usage")
        x, *tensors = operands
        shape = act.shape[given["axis"] :]
        numbers = [constant(t, "weights that depend on an input") for t in tensors if t is not None]
        weights = {name: np.broadcast_to(t, shape) for name, t in zip(("weight", "bias"), numbers)}
        layer: _layers.Layer = _layers.RMSNorm(shape, given["epsilon"])
        if node.op_type == "LayerNormalization":
            layer = _layers.LayerNorm(shape, given["epsilon"], bias="bias" in weights)
        return self._layer(node, layer, x, weights)

    def _layer(self, node: Any, layer: Any, x: Operand, tensors: Mapping[str, Optional[np.ndarray]]) -> Value:
        """A node with weights. They are named as the tensor is, ``fc1`` of ``fc1.weight``, or else as the node."""
        sources = dict(zip(tensors, node.input[1:]))
        given = {name: self.finite(t, sources.get(name, name)) for name, t in tensors.items() if t is not None}
        value = self.value(x)
        owner, _, end = sources.get("weight", "").rpartition(".")
        first = owner if end == "weight" and owner else self.file.name(node)
        weights, count = first, 1
        while not self._shares(weights, given):
            count += 1
            weights = f"{first}.{count}"
        self.written.weights.update({f"{weights}.{name}": numbers for name, numbers in given.items()})
        kind = type(layer)
        attributes = _layers.attributes_of(kind, layer)
        return self.written.node(self.file.name(node), kind.__name__, [value], attributes, weights)

    def _shares(self, weights: str, given: Dict[str, np.ndarray]) -> bool:
        """Whether nobody has weights of this name, or the same."""
        found = [self.written.weights.get(f"{weights}.{name}") for name in given]
        if all(numbers is None for numbers in found):
            return True
        return all(a is not None and np.array_equal(a, b) for a, b in zip(found, given.values()))

    def finite(self, numbers: np.ndarray, name: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            numbers = array(numbers)
        if not np.isfinite(numbers).all():
            raise UsageError(f"{name} has numbers that are not finite", "usage")
        return numbers

    # Operations without weights.

    def _window(self, node: Any, x: Operand, act: Act, kernel: Sequence[int]) -> Dict[str, Any]:
        """Kernel, stride, padding and, of a convolution, dilation, as torch's modules have them."""
        usual = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "auto_pad": "NOTSET"}
        given = {**usual, **attributes_of_node(node)}
        pads = given["pads"]
        if given["auto_pad"].startswith("SAME"):
            # What the windows reach beyond the value; of an odd number one side has one more.
            sizes = zip(act.shape[2:], act_of(x).shape[2:], given["strides"], given["dilations"], kernel)
            both = [max((to - 1) * step + gap * (size - 1) + 1 - along, 0) for to, along, step, gap, size in sizes]
            pads = [pad // 2 for pad in both] + [pad - pad // 2 for pad in both]
        if list(pads[:2]) != list(pads[2:]):
            raise UsageError(f"its padding of {list(pads)} is not the same on both sides", "usage")
        window = {"kernel_size": tuple(kernel), "stride": tuple(given["strides"]), "padding": tuple(pads[:2])}
        if node.op_type == "Conv":
            window["dilation"] = tuple(given["dilations"])
        elif list(given["dilations"]) != [1, 1]:
            raise UsageError("its windows have gaps", "usage")
        return window

    def _average(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        given = attributes_of_node(node)
        if len(act.shape) != 4:
            raise UsageError("use AvgPool2d, with windows of one row", "usage")
        if given.get("ceil_mode"):
            raise UsageError("its windows reach beyond the value (ceil_mode)", "usage")
        window = self._window(node, operands[0], act, given["kernel_shape"])
        layer = _layers.AvgPool2d(**window, count_include_pad=bool(given.get("count_include_pad", 0)))
        return self._plain(layer, self.value(operands[0]))

    def _global(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        return self._mean(operands[0], range(2, len(act.shape)), act)

    def _reduce(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        given = attributes_of_node(node)
        axes = given.get("axes") if len(operands) < 2 or operands[1] is None else list(constant(operands[1], "axes"))
        x = act_of(operands[0])
        if not axes and given.get("noop_with_empty_axes"):
            return self.value(x)
        mean = self._mean(x, axes if axes else range(len(x.shape)), act)
        count = int(np.prod(x.shape)) // max(int(np.prod(act.shape)), 1)
        return mean * float(count) if node.op_type == "ReduceSum" else mean

    def _mean(self, x: Operand, axes: Sequence[int], act: Act) -> Value:
        sizes = act_of(x).shape
        axes = sorted(int(axis) % len(sizes) for axis in axes)
        if not axes or axes[0] == 0:
            raise UsageError("a mean over the batch", "usage")
        return self.value(x).mean(axes, keepdim=len(act.shape) == len(sizes))

    def _concat(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        values = []
        for name, operand in zip(node.input, operands):
            if isinstance(operand, np.ndarray):
                if (operand != operand[:1]).any():
                    raise UsageError("a constant differs along the batch", "usage")
                values.append(self.written.constant(f"{self.written.label}.constant", self.finite(operand[0], name)))
            else:
                values.append(self.value(operand))
        return cat(values, attributes_of_node(node)["axis"] % len(act.shape))

    def _plain(self, layer: Any, x: Value) -> Value:
        kind = type(layer)
        return self.written.node(str(self.written.label), kind.__name__, [x], _layers.attributes_of(kind, layer))

    def _reshape(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        x = act_of(operands[0])
        if node.op_type == "Transpose":
            order = attributes_of_node(node).get("perm", list(range(len(x.shape)))[::-1])
            moved = [axis for axis in order if x.shape[axis] != 1]
            if order[0] != 0 or moved != sorted(moved):
                raise UsageError("it moves numbers: only dimensions of size 1 may change places", "usage")
        value = self.value(x)
        return value if x.shape == act.shape else value.reshape(*act.shape[1:])

    def _same(self, node: Any, operands: Sequence[Operand], act: Act) -> Value:
        training = [*operands, None, None][2]
        if node.op_type == "Dropout" and training is not None and (isinstance(training, Act) or training.any()):
            raise UsageError("it is in training mode: export the model for inference", "usage")
        if act.elem not in self.file.floats:
            raise UsageError(f"to {self.file.type_name(act.elem)}", "usage")
        return self.value(operands[0])


Read = Callable[[Writer, Any, Sequence[Operand], Act], Value]
#: By ONNX's names.
READERS: Dict[str, Read] = {
    "AveragePool": Writer._average,
    "BatchNormalization": Writer._batch_norm,
    "Concat": Writer._concat,
    "Conv": Writer._conv,
    "Gemm": Writer._gemm,
    "GlobalAveragePool": Writer._global,
    "MatMul": Writer._matmul,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), Writer._norm),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), Writer._reduce),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"), Writer._reshape),
    **dict.fromkeys(("Cast", "Dropout"), Writer._same),
}
