"""Networks from ONNX: the command answers as `onnx.reference` does, and everything that has no operation is named."""

import json
import math
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import hushed

RANDOM = np.random.default_rng(7)


def some(*shape):
    return (RANDOM.normal(size=shape) / math.sqrt(shape[-1])).astype("f4")


def model(nodes, weights, inputs, outputs, opset=18, **more):
    """Inputs and outputs have a batch of any size before these shapes."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "test",
        [value(name, TensorProto.FLOAT, ["batch", *shape]) for name, shape in inputs.items()],
        [value(name, TensorProto.FLOAT, [None]) for name in outputs],
        [numpy_helper.from_array(np.asarray(numbers), name) for name, numbers in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def node(op, reads, makes, **attributes):
    return helper.make_node(op, reads.split(), makes.split(), name=f"/{makes.split()[0]}/{op}", **attributes)


def same_answers(tmp_path, made, inputs, atol=1e-5):
    """Converts, and compares the command's answers to two inputs with the reference's."""
    network = hushed.from_onnx(made)
    network.save(tmp_path / "net")
    given = {name: RANDOM.normal(size=(2, *shape)).astype("f4") for name, shape in inputs.items()}
    lines = [json.dumps({name: numbers[row].tolist() for name, numbers in given.items()}) for row in range(2)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    arguments = ["clear", str(tmp_path / "net"), "--input", str(tmp_path / "x.jsonl"), "--json"]
    run = subprocess.run([sys.executable, "-m", "hushed", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = [json.loads(line)["outputs"] for line in run.stdout.splitlines()[:2]]
    reference = ReferenceEvaluator(made)
    for row in range(2):
        expected = reference.run(None, {name: numbers[row : row + 1] for name, numbers in given.items()})
        assert [output["name"] for output in network.outputs] == [output.name for output in made.graph.output]
        for output, wanted in zip(network.outputs, expected):
            np.testing.assert_allclose(found[row][output["name"]], wanted[0], atol=atol, rtol=1e-5)
    return network


def operations(network):
    return [(entry["name"], entry["op"]) for entry in network.nodes]


def test_an_mlp_with_torchs_names(tmp_path):
    nodes = [
        node("Gemm", "x fc1.weight fc1.bias", "a", transB=1),
        # A GELU as exporters write it.
        node("Div", "a root", "b"),
        node("Erf", "b", "c"),
        node("Add", "c one", "d"),
        node("Mul", "a d", "e"),
        node("Mul", "e half", "f"),
        node("Dropout", "f", "g"),
        node("Gemm", "g w2 fc2.bias", "h", alpha=0.5, beta=2.0),
        node("Mul", "h h", "i"),
        node("MatMul", "i w3", "j"),
        node("Add", "b3 j", "k"),
        node("Identity", "k", "logits"),
    ]
    weights = {
        **{"fc1.weight": some(5, 4), "fc1.bias": some(5), "w2": some(5, 6), "fc2.bias": some(1, 6), "w3": some(6, 3)},
        **{"b3": some(3), "root": np.float32(math.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)},
    }
    network = same_answers(tmp_path, model(nodes, weights, {"x": (4,)}, ["logits"]), {"x": (4,)})
    assert operations(network) == [
        ("/a/Gemm", "Linear"),
        ("/f/Mul", "GELU"),
        ("/h/Gemm", "Linear"),
        ("/i/Mul", "Square"),
        ("logits", "Linear"),
    ]
    assert {"fc1.weight", "fc1.bias", "/j/MatMul.weight", "/j/MatMul.bias"} <= network.weights.keys()
    assert network.outputs == [{"name": "logits", "shape": [3]}]


def test_a_cnn(tmp_path):
    nodes = [
        node("Conv", "x conv.weight conv.bias", "a", strides=[2, 1], pads=[1, 2, 1, 2]),
        node("BatchNormalization", "a bn.weight bn.bias bn.running_mean bn.running_var", "b", epsilon=1e-3),
        node("Relu", "b", "c"),
        node("Conv", "c grouped", "d", group=2, dilations=[1, 2], auto_pad="SAME_UPPER"),
        node("AveragePool", "d", "e", kernel_shape=[2, 2], strides=[1, 1], pads=[1, 1, 1, 1]),
        node("AveragePool", "e", "f", kernel_shape=[2, 2], strides=[2, 2], count_include_pad=1, pads=[1, 0, 1, 0]),
        node("GlobalAveragePool", "f", "pooled"),
        node("ReduceMean", "f axes", "g", keepdims=0),
        node("ReduceMean", "f rows", "h"),
        node("ReduceSum", "h last", "i", keepdims=0),
        node("Add", "g i", "j"),
        node("Reshape", "j shape", "k"),
        node("BatchNormalization", "k bn.weight bn.bias bn.running_mean bn.running_var", "l"),
        node("Transpose", "l", "m", perm=[0, 2, 1, 3]),
        node("Flatten", "m", "y"),
    ]
    norm = {"bn.weight": some(4), "bn.bias": some(4), "bn.running_mean": some(4), "bn.running_var": np.abs(some(4)) + 1}
    weights = {
        **{"conv.weight": some(4, 2, 3, 3), "conv.bias": some(4), "grouped": some(4, 2, 3, 3), **norm},
        **{"axes": np.array([-1, -2]), "rows": np.array([2]), "last": np.array([2, 3])},
        "shape": np.array([-1, 4, 1, 1]),
    }
    network = same_answers(tmp_path, model(nodes, weights, {"x": (2, 9, 8)}, ["y", "pooled"]), {"x": (2, 9, 8)})
    # Two nodes with one set of weights have it once.
    assert sum(name.endswith("running_mean") for name in network.weights) == 1
    assert [op for _, op in operations(network)].count("BatchNorm2d") == 2


def test_shapes_that_are_computed(tmp_path):
    """`x.view(x.size(0), -1)` as exporters write it, with weights that are computed too."""
    nodes = [
        node("Shape", "x", "s"),
        node("Constant", "", "zero", value=numpy_helper.from_array(np.int64(0))),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "u"),
        node("Concat", "u rest", "to", axis=0),
        node("Reshape", "x to", "flat"),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("Cast", "t", "cast", to=TensorProto.FLOAT),
        node("MatMul", "flat cast", "z"),
        node("Unsqueeze", "z last", "column"),
        node("Squeeze", "column last", "y"),
    ]
    weights = {"axes": np.array([0]), "rest": np.array([-1]), "last": np.array([-1]), "w": some(5, 12).astype("f8")}
    made = model(nodes, weights, {"x": (3, 4)}, ["y"])
    same_answers(tmp_path, made, {"x": (3, 4)})


def test_arithmetic(tmp_path):
    nodes = [
        node("Sub", "x w", "a"),
        node("Sub", "one a", "b"),
        node("Div", "b w", "c"),
        node("Mul", "c side", "d"),
        node("Neg", "d", "e"),
        node("Pow", "e two", "f"),
        node("Sub", "f x", "g"),
        node("Div", "g two", "y"),
        node("Add", "row x", "z"),
    ]
    weights = {"w": some(2, 3) + 3, "row": some(3), "one": np.full((1, 2, 3), 1, "f4"), "two": np.array([2], "f4")}
    shapes = {"x": (2, 3), "side": (2, 3)}
    same_answers(tmp_path, model(nodes, weights, shapes, ["y", "z"]), shapes)


def test_norms(tmp_path):
    nodes = [
        node("LayerNormalization", "x gain offset", "a", axis=-1, epsilon=0.01),
        node("LayerNormalization", "a wide", "b", axis=1),
        node("RMSNormalization", "b gain", "y", axis=2),
    ]
    weights = {"gain": some(4) + 1, "offset": some(4), "wide": some(3, 4) + 1}
    made = model(nodes, weights, {"x": (3, 4)}, ["y"], opset=23)
    network = same_answers(tmp_path, made, {"x": (3, 4)})
    assert [op for _, op in operations(network)] == ["LayerNorm", "LayerNorm", "RMSNorm"]


def test_values_are_joined_and_averaged(tmp_path):
    nodes = [
        node("ReduceMean", "x ends", "a"),
        node("Concat", "x row x", "b", axis=2),
        node("Concat", "b column", "c", axis=-1),
        node("ReduceMean", "c ends", "y", keepdims=0),
        node("ReduceSum", "a", "z"),
    ]
    weights = {"ends": np.array([-1, 1]), "row": some(1, 2, 1, 3), "column": some(1, 2, 9, 1)}
    made = model(nodes[:4], weights, {"x": (2, 4, 3)}, ["a", "c", "y"])
    network = same_answers(tmp_path, made, {"x": (2, 4, 3)})
    assert [op for _, op in operations(network)] == ["Mean", "Constant", "Concat", "Constant", "Concat", "Mean"]
    with pytest.raises(hushed.UsageError, match="/z/ReduceSum: ReduceSum .*batch"):
        hushed.from_onnx(model(nodes, weights, {"x": (2, 4, 3)}, ["y", "z"]))


def test_functions_in_parts(tmp_path):
    """Each is one operation in the end, whichever way it is written."""
    parts = {
        "silu": [node("Sigmoid", "x", "s1"), node("Mul", "s1 x", "silu")],
        "scaled": [
            node("Mul", "x half", "h1"),
            node("Tanh", "h1", "h2"),
            node("Add", "one h2", "h3"),
            node("Mul", "h3 half", "scaled"),
        ],
        "gelu": [
            node("Mul", "x half", "g1"),
            node("Mul", "x inverse", "g2"),
            node("Erf", "g2", "g3"),
            node("Add", "one g3", "g4"),
            node("Mul", "g1 g4", "gelu"),
        ],
        "tanh": [
            node("Pow", "x three", "t1"),
            node("Mul", "t1 small", "t2"),
            node("Add", "x t2", "t3"),
            node("Mul", "t3 factor", "t4"),
            node("Tanh", "t4", "t5"),
            node("Add", "t5 one", "t6"),
            node("Mul", "x t6", "t7"),
            node("Mul", "t7 half", "tanh"),
        ],
        "exact": [node("Gelu", "x", "exact")],
        "approximate": [node("Gelu", "x", "approximate", approximate="tanh")],
        "elu": [node("Elu", "x", "elu")],
        "relu": [node("Clip", "x zero", "relu")],
        "square": [node("Pow", "x two", "square")],
        "exp": [node("Exp", "x", "exp")],
        "sigmoid": [node("Exp", "n", "e1"), node("Add", "e1 one", "e2"), node("Div", "one e2", "sigmoid")],
    }
    weights = {"half": 0.5, "one": 1, "inverse": math.sqrt(0.5), "two": 2, "three": 3, "zero": 0, "small": 0.044715}
    weights = {name: np.float32(value) for name, value in {**weights, "factor": math.sqrt(2 / math.pi)}.items()}
    nodes = [node("Neg", "x", "n"), *sum(parts.values(), [])]
    network = same_answers(tmp_path, model(nodes, weights, {"x": (50,)}, list(parts), opset=20), {"x": (50,)})
    found = {name: (entry["op"], entry.get("attributes", {})) for entry in network.nodes for name in [entry["name"]]}
    assert found == {
        "silu": ("SiLU", {}),
        "scaled": ("Sigmoid", {}),
        "gelu": ("GELU", {}),
        "tanh": ("GELU", {"approximate": "tanh"}),
        "exact": ("GELU", {}),
        "approximate": ("GELU", {"approximate": "tanh"}),
        "elu": ("ELU", {}),
        "relu": ("ReLU", {}),
        "square": ("Square", {}),
        "exp": ("Exp", {}),
        "sigmoid": ("Sigmoid", {}),
    }


def test_values_inside_are_outputs(tmp_path):
    """The answer without a last softmax; what it does not depend on is left out."""
    nodes = [
        node("MatMul", "x w", "logits"),
        node("Softmax", "logits", "y"),
        node("ArgMax", "y", "class"),
        node("Sin", "other", "z"),
    ]
    made = model(nodes, {"w": some(4, 3)}, {"x": (4,), "other": (2,)}, ["class", "z"])
    network = hushed.from_onnx(made, outputs=["logits"])
    assert operations(network) == [("logits", "Linear")] and [given["name"] for given in network.inputs] == ["x"]
    with pytest.raises(hushed.UsageError, match="no node of the model makes nothing, x$"):
        hushed.from_onnx(made, outputs=["logits", "nothing", "x"])


def test_degrees_are_those_of_functions_without_one():
    nodes = [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Tanh", "b", "y")]
    network = hushed.from_onnx(model(nodes, {}, {"x": (4,)}, ["y"]))
    network.nodes[0]["attributes"] = {"degree": 7}
    assert [entry["attributes"] for entry in network.with_degree(31).nodes] == [
        {"degree": 7},
        {"value": -1.0},
        {"degree": 31},
    ]


def test_a_function_is_not_taken_for_another():
    """Bounds far out, and steepnesses that are nearly the same."""
    weights = {"zero": np.float32(0), "large": np.float32(1e6), "almost": np.float32(1.001)}
    for single in (
        node("Clip", "x zero large", "y"),
        node("Elu", "x", "y", alpha=0.99),
        node("LeakyRelu", "x", "y", alpha=1e-4),
    ):
        with pytest.raises(hushed.UsageError, match=f"{single.op_type} .use Interp"):
            hushed.from_onnx(model([single], weights, {"x": (4,)}, ["y"]))
    nodes = [node("Mul", "x almost", "a"), node("Sigmoid", "a", "b"), node("Mul", "x b", "y")]
    found = operations(hushed.from_onnx(model(nodes, weights, {"x": (4,)}, ["y"])))
    assert found == [("/a/Mul", "Mul"), ("/b/Sigmoid", "Sigmoid"), ("y", "Mul")]


def test_everything_without_an_operation_is_named():
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[2, 2]),
        node("LpNormalization", "a", "b"),
        node("Conv", "b w", "c", pads=[1, 0, 0, 1]),
        node("Softplus", "c", "d"),
        node("LeakyRelu", "c", "e"),
        node("Concat", "d e", "f", axis=1),
        node("Transpose", "f", "g", perm=[0, 2, 3, 1]),
        node("MatMul", "g g", "h"),
        node("Reshape", "h shape", "i"),
        node("Gemm", "i nan", "j"),
        node("Softmax", "j", "y"),
        helper.make_node("FusedThing", ["i"], ["z"], name="/z/Fused", domain="com.example"),
    ]
    weights = {"gain": some(2), "w": some(2, 2, 1, 1), "nan": np.full((4, 3), np.nan, "f4"), "shape": np.array([-1, 4])}
    made = model(nodes, weights, {"x": (2, 4, 4)}, ["y", "z"])
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(hushed.UsageError) as refused:
        hushed.from_onnx(made)
    message = str(refused.value)
    for expected in (
        "/a/MaxPool: MaxPool (use AvgPool2d)",
        "/b/LpNormalization: LpNormalization",
        "/c/Conv: Conv (its padding of [1, 0, 0, 1] is not the same on both sides)",
        "/d/Softplus: Softplus (use Interp, with a table of points)",
        "/e/LeakyRelu: LeakyRelu (use Interp, with a table of points)",
        "/g/Transpose: Transpose (it moves numbers",
        "/h/MatMul: MatMul (a product of two values)",
        "/i/Reshape: Reshape (its shape is",
        "/j/Gemm: Gemm (nan has numbers that are not finite)",
        "/y/Softmax: Softmax (leave it out",
        "/z/Fused: com.example.FusedThing",
    ):
        assert expected in message, message
    assert message.count("\n") == 11, message


@pytest.mark.parametrize(
    "shape, elem, expected",
    [
        (["n", 3, "height", 8], TensorProto.FLOAT, r"x: input \(its shape is \['n', 3, 'height', 8\]: sizes but that"),
        ([64], TensorProto.FLOAT, "the first dimension is the batch"),
        (["n", 4], TensorProto.INT64, "its numbers are INT64, not floats"),
    ],
)
def test_inputs_that_are_refused(shape, elem, expected):
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node("Neg", "x", "y")], "g", [value("x", elem, shape)], [value("y", elem, [None])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(hushed.UsageError, match=expected):
        hushed.from_onnx(made)


def test_files_that_are_refused(tmp_path):
    good = model([node("MatMul", "x w", "y")], {"w": some(64, 4)}, {"x": (64,)}, ["y"])
    path = tmp_path / "net.onnx"

    def refused(expected, what=path):
        with pytest.raises(hushed.FolderError, match=expected) as found:
            hushed.from_onnx(what)
        assert found.value.name == "model-folder"

    refused("net.onnx cannot be read")
    path.write_bytes(good.SerializeToString()[:-200])
    refused("net.onnx cannot be read")
    path.write_bytes(b"")
    refused("no valid ONNX model")
    for opset, expected in ((8, "has opset 8; export it with 9"), (900, "has opset 900, and the package onnx")):
        other = onnx.ModelProto()
        other.CopyFrom(good)
        other.opset_import[0].version = opset
        refused(expected, other)
    double = onnx.ModelProto()
    double.CopyFrom(good)
    double.graph.node.append(double.graph.node[0])
    refused("no valid ONNX model", double)
    short = onnx.ModelProto()
    short.CopyFrom(good)
    short.graph.initializer[0].raw_data = b"1234"
    refused("w: |no valid ONNX model", short)
    # Weights in a file of their own.
    onnx.save(good, path, save_as_external_data=True, location="net.weights", size_threshold=0)
    assert operations(hushed.from_onnx(str(path))) == [("y", "Linear")]
    refused("w, in net.weights: give from_onnx the path", onnx.load(path, load_external_data=False))
    (tmp_path / "net.weights").unlink()
    refused("w, in net.weights")


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(hushed.UsageError, match="pip install --upgrade onnx"):
        hushed.from_onnx("net.onnx")


def test_hints_are_those_of_the_command(tmp_path):
    from hushed.nn._faults import _INSTEAD, instead

    names = ("MaxPool2d", "LeakyReLU", "Hardswish", "Conv1d", "Softmax", "LogSoftmax")
    nodes = [{"name": name, "op": name, "inputs": ["x"]} for name in names]
    inputs, outputs = [{"name": "x", "shape": [4]}], [{"name": name} for name in names]
    graph = {"version": 1, "inputs": inputs, "nodes": nodes, "outputs": outputs}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    run = subprocess.run([sys.executable, "-m", "hushed", "check", str(tmp_path)], capture_output=True, text=True)
    for name in names:
        assert instead(name) and f"the operation {name} is unknown: {instead(name)}" in run.stdout + run.stderr
    assert len(names) == len(_INSTEAD)


def test_a_file_is_compiled(tmp_path):
    path = tmp_path / "net.onnx"
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a a", "b"), node("Gemm", "b v", "y")]
    onnx.save(model(nodes, {"w": some(6, 4), "v": some(4, 2)}, {"x": (6,)}, ["y"]), path)
    run = hushed.compile(path, np.sin(np.arange(60).reshape(10, 6)))
    assert run.plan["input"] == {"name": "x", "shape": [6]} and run.plan["outputs"][0]["name"] == "y"
