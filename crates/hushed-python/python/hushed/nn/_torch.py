"""From a module of torch to a network, through ``torch.fx``. Only this needs torch."""

import operator
from typing import Any, Callable, Dict, List, Tuple

from .._errors import UsageError
from . import _layers
from ._faults import Faults, needed
from ._network import Network, Value, array, cat


def from_torch(module: Any, sample: Any) -> Network:
    """The network of a ``torch.nn.Module``, with its weights.

    ``sample`` is an input with a batch dimension, or a tuple of inputs. The module is run on it once, for the shapes.

    >>> hushed.from_torch(net, torch.zeros(1, 64)).save("digits")

    Raises :class:`hushed.UsageError` with every call that has no operation, by its name in the module's code.
    """
    torch = needed("torch")
    from torch.fx.passes.shape_prop import ShapeProp

    samples: Tuple[Any, ...] = sample if isinstance(sample, tuple) else (sample,)
    # A copy would take memory; what training mode was on is on again afterwards.
    training = module.training
    module.eval()
    try:
        traced = torch.fx.symbolic_trace(module)
        with torch.no_grad():
            ShapeProp(traced).propagate(*samples)
        return _Reader(traced).network()
    finally:
        module.train(training)


class _Reader:
    """Reads a traced module node by node."""

    def __init__(self, traced: Any) -> None:
        self.traced = traced
        self.modules: Dict[str, Any] = dict(traced.named_modules())
        self.written = Network()
        self.values: Dict[Any, Any] = {}
        self.faults = Faults("module")

    def network(self) -> Network:
        for node in self.traced.graph.nodes:
            self.values[node] = getattr(self, node.op)(node)
        self.faults.end()
        self._weights()
        return self.written

    def placeholder(self, node: Any) -> Value:
        return self.written.input(node.target, _shape(node))

    def get_attr(self, node: Any) -> Value:
        value: Any = self.traced
        for part in node.target.split("."):
            value = getattr(value, part)
        return self.written.constant(node.target, value)

    def call_module(self, node: Any) -> Any:
        module = self.modules[node.target]
        name = type(module).__name__
        (x,) = self._given(node.args)
        if name.startswith("Dropout") or name == "Identity":
            return x
        kind = getattr(_layers, name, None)
        if kind is None or not issubclass(kind, _layers.Layer):
            return self._refuse(node, name)
        if x is None:
            return None
        return self.written.node(node.target, name, [x], _layers.attributes_of(kind, module), node.target)

    def call_function(self, node: Any) -> Any:
        return self._call(node, getattr(node.target, "__name__", str(node.target)))

    def call_method(self, node: Any) -> Any:
        return self._call(node, node.target)

    def output(self, node: Any) -> None:
        (answer,) = node.args
        nodes = list(answer) if isinstance(answer, (tuple, list)) else [answer]
        for of in nodes:
            value = self.values.get(of)
            if isinstance(value, Value):
                self.written.output(value, _shape(of))

    def _call(self, node: Any, name: str) -> Any:
        call = _CALLS.get(name)
        if call is None:
            return self._refuse(node, name)
        arguments = self._given(node.args)
        options = dict(zip(node.kwargs, self._given(node.kwargs.values())))
        first = [*arguments, *options.values()][:1]
        if None in first or (isinstance(first[0], list) and None in first[0]):
            # What it reads was refused.
            return None
        try:
            if name in _RESHAPES:
                return call(*first).reshape(*_shape(node))
            return call(*arguments, **options)
        except (TypeError, UsageError) as fault:
            return self._refuse(node, name, fault)

    def _given(self, arguments: Any) -> List[Any]:
        def one(given: Any) -> Any:
            return self.values.get(given) if hasattr(given, "op") else given

        return [[one(part) for part in a] if isinstance(a, (list, tuple)) else one(a) for a in arguments]

    def _refuse(self, node: Any, op: str, why: Any = "") -> None:
        # A module has the name that the user's code gives it.
        self.faults.add(node.target if node.op == "call_module" else node.name, op, why)

    def _weights(self) -> None:
        """The tensors of the modules that are called."""
        tensors = dict(self.traced.state_dict())
        for node in self.written.nodes:
            prefix = node.get("weights", node["name"])
            if prefix in self.modules:
                for name, tensor in tensors.items():
                    owner, _, end = name.rpartition(".")
                    if owner == prefix and end != "num_batches_tracked":
                        self.written.weights[name] = array(tensor)


def _shape(node: Any) -> List[int]:
    """The shape of a value without its batch dimension."""
    return list(node.meta["tensor_meta"].shape)[1:]


def _layer(op: str) -> Callable[..., Value]:
    def call(x: Value, inplace: bool = False, **options: Any) -> Value:
        return x.network.node(op.lower(), op, [x], options)

    return call


#: Calls that give the numbers under a shape that the sample shows.
_RESHAPES = ("flatten", "reshape", "view", "unflatten", "squeeze", "unsqueeze")

#: By the names of torch's functions and methods.
_CALLS: Dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
    **dict.fromkeys(("cat", "concat", "concatenate"), cat),
    "mean": Value.mean,
    "square": _layer("Square"),
    "relu": _layer("ReLU"),
    "gelu": _layer("GELU"),
    "silu": _layer("SiLU"),
    "elu": _layer("ELU"),
    "tanh": _layer("Tanh"),
    "sigmoid": _layer("Sigmoid"),
    "exp": _layer("Exp"),
    **dict.fromkeys(_RESHAPES, lambda x: x),
    "dropout": lambda x, *_, **__: x,
    "contiguous": lambda x: x,
}
