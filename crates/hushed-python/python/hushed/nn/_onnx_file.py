"""An ONNX file: what is in it, checked, and what the package ``onnx`` says of a node."""

import os
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import FolderError
from ._faults import needed
from ._network import PathLike

#: Since when normalisations, additions and sizes of windows are written as they are today.
_LEAST_OPSET = 9
_DEFAULT = ("", "ai.onnx")
#: Of a value its shape and type.
Known = Tuple[Sequence[int], int]


class OnnxFile:
    """A model with its weights. Raises :class:`hushed.FolderError` if it cannot be used at all."""

    def __init__(self, model: Union[PathLike, Any]) -> None:
        self.onnx = needed("onnx")
        # Submodules that the package does not import by itself.
        for name in ("inliner", "numpy_helper", "reference", "shape_inference", "external_data_helper"):
            needed(f"onnx.{name}")
        types = self.onnx.TensorProto
        self.floats = (types.FLOAT, types.DOUBLE, types.FLOAT16, types.BFLOAT16)
        folder = None
        if isinstance(model, (str, os.PathLike)):
            path = pathlib.Path(model)
            folder = path.parent
            try:
                model = self.onnx.load(os.fspath(path), load_external_data=False)
            except Exception as fault:  # of the file system, of protobuf, of a text
                raise _refused(f"{path} cannot be read as an ONNX model: {fault}") from fault
        self._external(model, folder)
        self._versions(model)
        try:
            self.onnx.checker.check_model(model)
            self.model = self.onnx.inliner.inline_local_functions(model) if model.functions else model
        except Exception as fault:  # a text for each kind of fault, and of protobuf where there are too many bytes
            raise _refused(f"the model is no valid ONNX model: {fault}") from fault
        self.graph = self.model.graph
        self.constants: Dict[str, np.ndarray] = {}
        faults = [f"{tensor.values.name}: a sparse tensor" for tensor in self.graph.sparse_initializer]
        for tensor in self.graph.initializer:
            try:
                self.constants[tensor.name] = _plain(self.onnx.numpy_helper.to_array(tensor))
            except Exception as fault:  # fewer bytes than its shape has
                faults.append(f"{tensor.name}: {fault}")
        if faults:
            raise _refused("tensors that cannot be read:" + "".join(f"\n  - {fault}" for fault in faults))
        #: Those that are no weights: older files list both.
        self.inputs = [given for given in self.graph.input if given.name not in self.constants]

    def name(self, node: Any) -> str:
        """Its name, or that of its value where it has none."""
        return str(node.name or next(iter(node.output), "") or node.op_type)

    def op(self, node: Any) -> str:
        """Its operation, with the domain of one that is not ONNX's own."""
        return str(node.op_type if node.domain in _DEFAULT else f"{node.domain}.{node.op_type}")

    def type_name(self, elem: int) -> str:
        """ONNX's name of a type of numbers."""
        known = self.onnx.TensorProto.DataType
        return str(known.Name(elem)) if elem in known.values() else f"of type {elem}"

    def inferred(self, node: Any, operands: Sequence[Union[np.ndarray, Known, None]]) -> Tuple[List[int], int]:
        """The shape and the type of its first value. ``operands`` are numbers, or shapes and types."""
        helper = self.onnx.helper
        inputs, initialisers = [], []
        for name, operand in dict(zip(node.input, operands)).items():
            if isinstance(operand, np.ndarray):
                # A shape may depend on few whole numbers, never on weights.
                if operand.dtype.kind in "iub" and operand.size <= 1024:
                    initialisers.append(self.onnx.numpy_helper.from_array(np.asarray(operand), name))
                    continue
                operand = operand.shape, helper.np_dtype_to_tensor_dtype(operand.dtype)
            if operand is not None:
                inputs.append(helper.make_tensor_value_info(name, operand[1], list(operand[0])))
        model = self._alone(node, inputs, initialisers)
        model = self.onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        found = {info.name: info.type.tensor_type for info in (*model.graph.output, *model.graph.value_info)}
        tensor = found[node.output[0]]
        sizes = [size.dim_value for size in tensor.shape.dim]
        if not tensor.HasField("shape") or not all(size.HasField("dim_value") for size in tensor.shape.dim):
            raise ValueError("it depends on numbers that only a run has")
        return sizes, tensor.elem_type

    def evaluated(self, node: Any, operands: Sequence[Optional[np.ndarray]], most: int) -> List[np.ndarray]:
        """Its values, of at most so many numbers each."""
        given = {name: np.asarray(numbers) for name, numbers in zip(node.input, operands) if numbers is not None}
        size = [numbers.size for numbers in given.values()]
        if node.op_type in ("ConstantOfShape", "Expand", "Range", "MatMul") or sum(size) > 1 << 16:
            shape, _ = self.inferred(node, [given.get(name) for name in node.input])
            if np.prod(shape, dtype=np.float64) > most:
                raise ValueError(f"its shape is {shape}, of more than {most} numbers")
        inputs = [self.onnx.helper.make_tensor_value_info(name, 1, None) for name in given]
        run = self.onnx.reference.ReferenceEvaluator(self._alone(node, inputs, []))
        return [_plain(np.asarray(numbers)) for numbers in run.run(None, given)]

    def _alone(self, node: Any, inputs: Sequence[Any], initialisers: Sequence[Any]) -> Any:
        """A model of this node, whose values have no types so far."""
        outputs = [self.onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = self.onnx.helper.make_graph([node], "node", inputs, outputs, initialisers)
        opsets = list(self.model.opset_import)
        return self.onnx.helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version)

    def _external(self, model: Any, folder: Optional[pathlib.Path]) -> None:
        """Reads the weights that lie in files beside the model."""
        helper, faults = self.onnx.external_data_helper, []
        for tensor in model.graph.initializer:
            if not helper.uses_external_data(tensor):
                continue
            file = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            try:
                if folder is None:
                    raise ValueError("give from_onnx the path, or load the model with its weights")
                helper.load_external_data_for_tensor(tensor, os.fspath(folder))
                tensor.data_location = self.onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
            except Exception as fault:  # a missing file, or one outside the folder
                faults.append(f"{tensor.name}, in {file}: {fault}")
        if faults:
            raise _refused("weights beside the model are missing:" + "".join(f"\n  - {fault}" for fault in faults))

    def _versions(self, model: Any) -> None:
        most = self.onnx.defs.onnx_opset_version()
        found = [opset.version for opset in model.opset_import if opset.domain in _DEFAULT]
        if any(version < _LEAST_OPSET for version in found):
            raise _refused(f"the model has opset {found[0]}; export it with {_LEAST_OPSET} or newer")
        if any(version > most for version in found):
            raise _refused(
                f"the model has opset {found[0]}, and the package onnx {self.onnx.__version__} knows those up to "
                f"{most}: update the package, or export the model with an older opset"
            )


def attributes_of_node(node: Any) -> Dict[str, Any]:
    """The attributes of a node that are numbers, texts and lists of them."""
    onnx = needed("onnx")
    found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def _plain(numbers: np.ndarray) -> np.ndarray:
    """Halves, which numpy may not know, as floats."""
    kept = numbers.dtype.kind in "iub" or numbers.dtype in (np.float32, np.float64) or numbers.dtype.kind in "OSU"
    return numbers if kept else numbers.astype(np.float32)


def _refused(message: str) -> FolderError:
    return FolderError(message, "model-folder")
