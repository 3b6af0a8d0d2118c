"""From an ONNX model to a network, through the package ``onnx``. Only this needs it.

The first dimension of every value is the batch. A size that the file leaves open there counts as 1, so that all shapes
are known: nodes that depend on no input are computed by ``onnx.reference``, and shapes come from ``onnx``'s inference.
"""

import operator
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from .._errors import UsageError
from ._elementwise import ELEMENTWISE, POINTS, known
from ._faults import Faults, instead
from ._network import Network, PathLike, Value
from ._onnx_file import OnnxFile, attributes_of_node
from ._onnx_layers import READERS, Writer
from ._onnx_values import Act, Lost, Operand, number_of

#: What is computed where nothing depends on an input.
_FOLDED = frozenset(
    "Cast CastLike Concat Constant ConstantOfShape DequantizeLinear Equal Expand Gather Range ReduceProd Size "
    "Slice Where".split()
)
#: Most numbers of a value that is computed here; ``hushed check`` accepts no more.
_MAX_NUMBERS = 1 << 26


def from_onnx(model: Union[PathLike, Any], *, outputs: Optional[Sequence[str]] = None) -> Network:
    """The network of an ONNX model: the path of a file, or an ``onnx.ModelProto``. Needs the package ``onnx``.

    >>> hushed.from_onnx("digits.onnx").save("digits")

    ``outputs`` names values that are the answer in place of the model's outputs, such as what a last softmax reads.
    Nodes and inputs that they do not depend on are left out.

    Raises :class:`hushed.UsageError` with every node that has no operation, by its name in the model, and
    :class:`hushed.FolderError` if the file cannot be used at all.
    """
    return _Reader(OnnxFile(model)).network(outputs)


class _Reader(Writer):
    """Reads a model node by node."""

    def __init__(self, file: OnnxFile) -> None:
        super().__init__(file)
        self.faults = Faults("model")
        self.values: Dict[str, Operand] = dict(file.constants)
        #: How many read a value, of those that an output depends on.
        self.readers: Dict[str, int] = {}

    def network(self, outputs: Optional[Sequence[str]]) -> Network:
        graph = self.file.graph
        made = {name for node in graph.node for name in node.output}
        names = [output.name for output in graph.output] if outputs is None else list(outputs)
        unknown = [name for name in names if name not in made] if outputs is not None else []
        if unknown:
            raise UsageError(f"no node of the model makes {', '.join(unknown)}", "usage")
        self.readers = Counter(names)
        nodes = []
        # A model's nodes come after those that they read.
        for node in reversed(graph.node):
            if any(name in self.readers for name in node.output):
                nodes.append(node)
                self.readers.update(node.input)
        for given in self.file.inputs:
            if given.name in self.readers:
                self._input(given)
        for node in reversed(nodes):
            results = self._node(node)
            self.values.update(zip(node.output, [*results, *[None] * len(node.output)]))
        for name in names:
            self._output(name)
        self.faults.end()
        self.written.label = None
        self.written.drop_unused()
        return self.written

    def _input(self, given: Any) -> None:
        sizes: List[Any] = [size.dim_value or size.dim_param or "?" for size in given.type.tensor_type.shape.dim]
        elem = given.type.tensor_type.elem_type
        if elem not in self.file.floats:
            return self.faults.add(given.name, "input", f"its numbers are {self.file.type_name(elem)}, not floats")
        if len(sizes) < 2:
            why = f"its shape is {sizes}: the first dimension is the batch, and there is no other; export it with one"
            return self.faults.add(given.name, "input", why)
        if any(isinstance(size, str) for size in sizes[1:]):
            why = f"its shape is {sizes}: sizes but that of the batch have to be fixed; export it with fixed ones"
            return self.faults.add(given.name, "input", why)
        act = Act([sizes[0] if isinstance(sizes[0], int) else 1, *sizes[1:]], elem)
        act.value = self.written.input(given.name, sizes[1:])
        self.values[given.name] = act.is_root()

    def _output(self, name: str) -> None:
        act = self.values.get(name)
        if isinstance(act, np.ndarray):
            self.faults.add(name, "output", "it depends on no input")
        if not isinstance(act, Act):
            return
        self._report([act])
        if act.value is None:
            return
        value = act.value
        self.written.label = name
        if value.name in {entry["name"] for entry in (*self.written.inputs, *self.written.outputs)}:
            value = value.reshape(*act.shape[1:])
        self.written.rename(value, name)
        self.written.output(value, act.shape[1:])

    def _node(self, node: Any) -> List[Operand]:
        name, op = self.file.name(node), self.file.op(node)
        operands = [self.values.get(read) for read in node.input]
        if op == "Identity":
            return operands
        if op == "Shape" and not isinstance(operands[0], np.ndarray):
            return [] if operands[0] is None else [_shape(node, operands[0])]
        reader = READERS.get(op)
        if all(not read or isinstance(found, np.ndarray) for read, found in zip(node.input, operands)):
            if reader or op in _FOLDED or op in ELEMENTWISE:
                return self._folded(node, operands)
        if reader is None and op not in ELEMENTWISE:
            self.faults.add(name, op, instead(op) or _OTHERS.get(op, ""))
        if op not in ELEMENTWISE:
            self._report(operands)
        if any(read and found is None for read, found in zip(node.input, operands)):
            return []
        try:
            act = Act(*self.file.inferred(node, [(o.shape, o.elem) if isinstance(o, Act) else o for o in operands]))
        except Exception as fault:  # of another class in each release of onnx
            if reader is not None or op in ELEMENTWISE:
                self.faults.add(name, op, f"its shape cannot be known: {_line(fault)}")
            return []
        self.written.label = name
        if op in ELEMENTWISE:
            return [self._elementwise(node, operands, act)]
        try:
            if reader is not None:
                batch = next(operand.shape[:1] for operand in operands if isinstance(operand, Act))
                if act.shape[:1] != batch:
                    why = f"its shape is {list(act.shape)}, and the first dimension has to stay the batch"
                    raise UsageError(why, "usage")
                act.value = reader(self, node, operands, act)
        except (TypeError, ValueError) as fault:
            self.faults.add(name, op, fault)
        except Lost:
            pass
        return [act.is_root()]

    def _folded(self, node: Any, operands: Sequence[Operand]) -> List[Operand]:
        """The values of a node that depends on no input."""
        numbers = [found if isinstance(found, np.ndarray) else None for found in operands]
        try:
            return [*self.file.evaluated(node, numbers, _MAX_NUMBERS)]
        except Exception as fault:  # whatever the reference evaluator raises
            self.faults.add(self.file.name(node), self.file.op(node), f"it cannot be computed: {_line(fault)}")
            return []

    def _report(self, operands: Sequence[Operand]) -> None:
        """Reports why operands have no value: this node is no function of them that could do without."""
        for operand in operands:
            if isinstance(operand, Act):
                for fault in operand.faults:
                    self.faults.add(*fault)
                operand.faults = []

    # Operations number by number.

    def _elementwise(self, node: Any, operands: Sequence[Operand], act: Act) -> Act:
        """The function that the node and those before it are together, if it has an operation, and else the node."""
        name, op = self.file.name(node), self.file.op(node)
        read = [operand for operand in operands if isinstance(operand, Act)]
        even = all(operand.shape == act.shape for operand in read)
        common = [root for root in read[0].roots if even and all(root in operand.roots for operand in read)]
        functions = {root: self._at_points(node, operands, root) for root in common}
        act.roots = {root: numbers for root, numbers in functions.items() if numbers is not None}
        for root, numbers in reversed(list(act.roots.items())):
            function = known(numbers)
            if function is not None:
                if root.value is not None:
                    act.value = self.written.node(name, function[0], [root.value], function[1])
                return act.is_root()
        act.faults = [fault for operand in read for fault in operand.faults]
        try:
            if op not in _ARITHMETIC:
                raise UsageError(instead(op) or "use Interp, with a table of points", "usage")
            if not even:
                shapes = ", ".join(str(list(o.shape)) for o in operands if o is not None)
                raise UsageError(f"it reads values of the shapes {shapes}, which have to be equal", "usage")
            if act.faults:
                return act
            act.value = self._biased(node, operands) or self._arithmetic(op, operands, act)
        except (TypeError, ValueError) as fault:
            act.faults.append((name, op, str(fault)))
            return act
        except Lost:
            pass
        return act.is_root()

    def _at_points(self, node: Any, operands: Sequence[Operand], root: Act) -> Optional[np.ndarray]:
        given: List[Optional[np.ndarray]] = []
        for operand in operands:
            if isinstance(operand, Act):
                given.append(operand.roots[root])
            elif operand is None:
                given.append(None)
            else:
                if number_of(operand) is None:
                    return None
                number = operand.reshape(-1)[:1].reshape(())
                given.append(number.astype(np.float64) if operand.dtype.kind == "f" else number)
        try:
            with np.errstate(all="ignore"):
                (numbers,) = self.file.evaluated(node, given, len(POINTS))
        except Exception:  # a type that the reference evaluator does not take
            return None
        return numbers if numbers.shape == POINTS.shape else None

    def _arithmetic(self, op: str, operands: Sequence[Operand], act: Act) -> Value:
        given: List[Any] = []
        for operand in operands:
            if isinstance(operand, Act):
                given.append(self.value(operand))
            elif operand is not None:
                number = number_of(operand)
                given.append(number if number is not None else operand)
        # Numbers that differ are a value of the whole shape; a quotient by them is a product.
        for place, numbers in enumerate(given):
            if isinstance(numbers, np.ndarray):
                if op == "Div" and place == 1:
                    op, numbers = "Mul", 1 / self.finite(numbers, "the divisor")
                whole = np.broadcast_to(self.finite(numbers, "a constant"), act.shape)
                if (whole != whole[:1]).any():
                    raise UsageError("a constant differs along the batch", "usage")
                given[place] = self.written.constant(f"{self.written.label}.constant", whole[0])
        value: Value = _ARITHMETIC[op](*given)
        return value

    def _biased(self, node: Any, operands: Sequence[Operand]) -> Optional[Value]:
        """A linear layer of a product that nothing else reads, and the numbers that are added to it."""
        if node.op_type != "Add":
            return None
        for name, x, bias in zip(node.input, operands, reversed(operands)):
            if isinstance(x, Act) and x.value is not None and isinstance(bias, np.ndarray) and self.readers[name] == 1:
                nodes = (entry for entry in self.written.nodes if entry["name"] == x.value.name)
                entry: Dict[str, Any] = next(nodes, {"op": "Input"})
                out = x.shape[-1]
                fits = bias.size == out and bias.shape[-1:] == (out,)
                if fits and entry["op"] == "Linear" and not entry["attributes"]["bias"]:
                    owner = f"{entry.get('weights', entry['name'])}.bias"
                    if owner not in self.written.weights:
                        entry["attributes"]["bias"] = True
                        self.written.weights[owner] = self.finite(bias.reshape(out), node.input[1])
                        return x.value
        return None


#: By ONNX's names.
_ARITHMETIC: Dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Div": operator.truediv,
    "Mul": operator.mul,
    "Neg": operator.neg,
    "Pow": operator.pow,
    "Sub": operator.sub,
}
#: What to use in place of operations that torch's modules do not have.
_OTHERS = {
    "ArgMax": "end at what it reads, with outputs=",
    "Gather": "look rows up before the network: it takes numbers",
    "Pad": "use the padding of Conv2d or AvgPool2d",
}


def _shape(node: Any, of: Act) -> np.ndarray:
    """What a node `Shape` gives."""
    given = attributes_of_node(node)
    return np.array(of.shape[given.get("start", 0) : given.get("end")], dtype=np.int64)


def _line(fault: Exception) -> str:
    """The first line of a message, which may have many."""
    return str(fault).strip().split("\n")[0][:200]
