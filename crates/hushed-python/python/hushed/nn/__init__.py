"""Networks of one's own, with the names and arguments of ``torch.nn`` and without torch (docs/networks.md).

>>> from hushed import nn
>>> net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
>>> net.load_state_dict(numpy.load("digits.npz"))
>>> net.save("digits", (64,))

The folder holds ``graph.json`` and ``model.safetensors``. ``hushed check`` says whether it can be used, and
``hushed clear`` computes its answers in the clear.
"""

from ._layers import (
    ELU,
    GELU,
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Exp,
    Flatten,
    Identity,
    Interp,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Square,
    Tanh,
)
from ._module import Module
from ._network import Network, Value, cat
from ._onnx import from_onnx
from ._torch import from_torch

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "Dropout",
    "Exp",
    "Flatten",
    "Identity",
    "Interp",
    "LayerNorm",
    "Linear",
    "Module",
    "Network",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Square",
    "Tanh",
    "Value",
    "cat",
    "from_onnx",
    "from_torch",
]
