"""The layers, one class each: torch's names and arguments. The attributes of a node are a layer's attributes."""

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from ._module import Module, name_of
from ._network import Value

Size = Union[int, Tuple[int, int]]


class Layer(Module):
    """A module that is one node."""

    #: The arguments that the node has as attributes.
    _attributes: Tuple[str, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Value) -> Value:  # type: ignore[override]
        name = name_of(self)
        return x.network.node(name, type(self).__name__, [x], attributes_of(type(self), self), name)


def attributes_of(kind: "type[Layer]", module: Any) -> Dict[str, Any]:
    """The attributes of a node of this kind, from one of our modules or of torch's."""
    found = {name: getattr(module, name, None) for name in kind._attributes}
    # torch has the tensor or None under this name.
    if "bias" in found and not isinstance(found["bias"], bool):
        found["bias"] = found["bias"] is not None
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value is not None}


class Linear(Layer):
    """``x·Wᵀ + b`` over the last dimension."""

    _attributes = ("in_features", "out_features", "bias")

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features=in_features, out_features=out_features, bias=bool(bias))
        self._weights = ("weight", "bias") if bias else ("weight",)


class Conv2d(Layer):
    """A convolution over rows and columns; zeros are its only padding."""

    _attributes = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "bias",
        "padding_mode",
    )

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            in_channels=in_channels,
            out_channels=out_channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bool(bias),
            padding_mode=padding_mode,
        )
        self._weights = ("weight", "bias") if bias else ("weight",)


class AvgPool2d(Layer):
    """The mean of each window."""

    _attributes = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")

    def __init__(
        self,
        kernel_size: Size,
        stride: Optional[Size] = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )


class AdaptiveAvgPool2d(Layer):
    """The mean of all rows and columns; 1 is the only size."""

    _attributes = ("output_size",)

    def __init__(self, output_size: Size) -> None:
        super().__init__(output_size=output_size)


class BatchNorm1d(Layer):
    """The normalisation that training left: a factor and an offset for each channel."""

    _attributes = ("num_features", "eps", "affine")

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(num_features=num_features, eps=eps, affine=affine)
        self._weights = (*(("weight", "bias") if affine else ()), "running_mean", "running_var")


class BatchNorm2d(BatchNorm1d):
    """The same for channels of rows and columns."""


class LayerNorm(Layer):
    """Rows, the last dimensions, with a mean of 0 and a variance of 1; then a gain and an offset for each number.

    ``degree`` is that of the polynomial of ``1/sqrt`` under encryption.
    """

    _attributes = ("normalized_shape", "eps", "elementwise_affine", "bias", "degree")

    def __init__(
        self,
        normalized_shape: Union[int, Sequence[int]],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        degree: Optional[int] = None,
    ) -> None:
        super().__init__(
            normalized_shape=_sizes(normalized_shape),
            eps=eps,
            elementwise_affine=elementwise_affine,
            bias=bool(bias and elementwise_affine),
            degree=degree,
        )
        self._weights = ("weight", "bias")[: elementwise_affine + (elementwise_affine and bias)]


class RMSNorm(Layer):
    """The same with the mean taken as 0, and without offsets."""

    _attributes = ("normalized_shape", "eps", "elementwise_affine", "degree")

    def __init__(
        self,
        normalized_shape: Union[int, Sequence[int]],
        eps: Optional[float] = None,
        elementwise_affine: bool = True,
        *,
        degree: Optional[int] = None,
    ) -> None:
        super().__init__(
            normalized_shape=_sizes(normalized_shape), eps=eps, elementwise_affine=elementwise_affine, degree=degree
        )
        self._weights = ("weight",) if elementwise_affine else ()


def _sizes(shape: Union[int, Sequence[int]]) -> Tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class ReLU(Layer):
    """``max(x, 0)``. ``degree`` is that of the polynomial in its place under encryption."""

    _attributes = ("degree",)

    def __init__(self, inplace: bool = False, *, degree: Optional[int] = None) -> None:
        super().__init__(degree=degree)


class SiLU(ReLU):
    """``x/(1 + e^{-x})``."""


class GELU(Layer):
    """``x·Φ(x)``, or with ``approximate="tanh"`` torch's approximation of it."""

    _attributes = ("approximate", "degree")

    def __init__(self, approximate: str = "none", *, degree: Optional[int] = None) -> None:
        super().__init__(approximate=approximate, degree=degree)


class ELU(Layer):
    """``x`` for ``x ≥ 0`` and ``e^x - 1`` below; ``alpha`` is 1."""

    _attributes = ("alpha", "degree")

    def __init__(self, alpha: float = 1.0, inplace: bool = False, *, degree: Optional[int] = None) -> None:
        super().__init__(alpha=alpha, degree=degree)


class Tanh(Layer):
    """The hyperbolic tangent."""

    _attributes = ("degree",)

    def __init__(self, *, degree: Optional[int] = None) -> None:
        super().__init__(degree=degree)


class Sigmoid(Tanh):
    """``1/(1 + e^{-x})``."""


class Exp(Tanh):
    """``e^x``."""


class Square(Layer):
    """``x²``."""


class Interp(Layer):
    """Any function of one number, by its points, as ``numpy.interp``: linear between them, constant outside."""

    _attributes = ("xp", "fp", "degree")

    def __init__(self, xp: Sequence[float], fp: Sequence[float], *, degree: Optional[int] = None) -> None:
        super().__init__(xp=[float(x) for x in xp], fp=[float(y) for y in fp], degree=degree)


class Flatten(Layer):
    """The dimensions from one to another as one; dimension 0 is the batch."""

    _attributes = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__(start_dim=start_dim, end_dim=end_dim)


class Identity(Module):
    """Nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, x: Value) -> Value:  # type: ignore[override]
        return x


class Dropout(Identity):
    """Nothing: it acts in training alone."""


class Sequential(Module):
    """Modules, one after another, named by their numbers."""

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def forward(self, x: Value) -> Value:  # type: ignore[override]
        for _, module in self.named_children():
            x = module(x)
        return x
