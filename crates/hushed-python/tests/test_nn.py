"""Networks: what `hushed.nn` writes is what torch's modules give, and the command answers as torch does."""

import importlib.util
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

import hushed
from hushed import nn

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "hushed-model" / "tests" / "golden" / "graphs"


class Mlp(nn.Module):
    """The module of scripts/tiny_graphs.py, without torch."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU())
        self.second = nn.Linear(8, 8, bias=False)
        self.drop = nn.Dropout()
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.drop(self.second(x) ** 2))


def tensors(path):
    """The arrays of a file of safetensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {
        name: np.frombuffer(data[8 + length :][slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
    }


def command(*arguments):
    run = subprocess.run([sys.executable, "-m", "hushed", *map(str, arguments)], capture_output=True, text=True)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines()], run.stderr


def saved(folder):
    net = Mlp()
    net.load_state_dict(tensors(GOLDEN / "mlp" / "model.safetensors"))
    net.save(folder, (6,))
    return net


def test_a_module_is_written_as_torch_has_it(tmp_path):
    net = saved(tmp_path)
    found, published = (json.loads((path / "graph.json").read_text()) for path in (tmp_path, GOLDEN / "mlp"))
    assert found["nodes"] == published["nodes"] and found["inputs"] == published["inputs"]
    assert [output["name"] for output in found["outputs"]] == ["last"]
    expected = tensors(GOLDEN / "mlp" / "model.safetensors")
    assert tensors(tmp_path / "model.safetensors").keys() == expected.keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, expected[name])


def test_the_command_checks_and_answers(tmp_path):
    saved(tmp_path / "net")
    code, rows, error = command("check", tmp_path / "net", "--json")
    assert code == 0 and rows[0]["graph"]["nodes"] == 7, error
    cases = json.loads((GOLDEN / "mlp" / "expected.json").read_text())
    np.save(tmp_path / "x.npy", np.array([case["inputs"][0] for case in cases]))
    code, rows, error = command("clear", tmp_path / "net", "--input", tmp_path / "x.npy", "--json")
    assert code == 0, error
    for row, case in zip(rows, cases):
        np.testing.assert_allclose(row["outputs"]["last"], case["outputs"][0], atol=1e-6)


def test_weights_are_checked_by_name():
    net = nn.Sequential(nn.Linear(2, 3), nn.Identity(), nn.ReLU(degree=7))
    with pytest.raises(hushed.UsageError, match=r"without numbers: 0\.weight, 0\.bias"):
        net.trace((2,))
    good = {"0.weight": np.zeros((3, 2)), "0.bias": np.zeros(3)}
    with pytest.raises(hushed.UsageError, match=r"missing: 0\.bias; unexpected: more"):
        net.load_state_dict({"0.weight": good["0.weight"], "more": np.zeros(1)})
    net.load_state_dict({**good, "0.num_batches_tracked": np.array(3)})
    network = net.trace((2,))
    assert [(node["name"], node["op"]) for node in network.nodes] == [("0", "Linear"), ("2", "ReLU")]
    assert network.nodes[1]["attributes"] == {"degree": 7}
    with pytest.raises(TypeError, match="takes values of a network, not ndarray"):
        net(np.zeros(2))


def test_arithmetic_shared_layers_and_several_answers(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(4, 4)

        def forward(self, a, b):
            c = 2 - self.shared(self.shared(a)) * b / 4
            joined = nn.cat([b.exp(degree=7).reshape(2, 2), a.reshape(2, 2)], 2)
            return c.reshape(2, 2).flatten(), -(a - 1) ** 2, joined.mean(1), joined.mean((-2, -1), keepdim=True)

    net = Net()
    weight, bias = np.random.default_rng(1).normal(size=(2, 4, 4)).astype("f4")
    net.load_state_dict({"shared.weight": weight, "shared.bias": bias[0]})
    net.save(tmp_path, {"a": (4,), "b": (4,)})
    a, b = np.arange(4.0), np.arange(4.0) - 2
    (tmp_path / "x").write_text(json.dumps({"a": a.tolist(), "b": b.tolist()}))
    code, rows, error = command("clear", tmp_path, "--input", tmp_path / "x", "--json")
    assert code == 0, error
    twice = (a @ weight.T + bias[0]) @ weight.T + bias[0]
    # In the order of their names.
    found = list(rows[0]["outputs"].values())
    np.testing.assert_allclose(found[0], 2 - twice * b / 4, rtol=1e-5)
    np.testing.assert_allclose(found[3], -((a - 1) ** 2))
    joined = np.concatenate([np.exp(b).reshape(2, 2), a.reshape(2, 2)], 1)
    np.testing.assert_allclose(found[1], joined.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found[2], [[joined.mean()]], rtol=1e-6)


def test_every_layer_is_accepted_by_the_command(tmp_path):
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.BatchNorm2d(4),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.LayerNorm((1, 1), bias=False),
        nn.Flatten(),
        nn.RMSNorm(4, degree=31),
        nn.BatchNorm1d(4, affine=False),
        *(kind() for kind in (nn.ReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Exp, nn.Square)),
        nn.Interp([0, 1], [1, 0], degree=5),
    )
    norm = {name: np.ones(4) for name in ("1.weight", "1.bias", "1.running_mean", "1.running_var")}
    norm.update({name: np.ones(4) for name in ("7.running_mean", "7.running_var", "6.weight")})
    norm["4.weight"] = np.ones((1, 1))
    net.load_state_dict({"0.weight": np.ones((4, 1, 3, 3)), "0.bias": np.ones(4), **norm})
    net.save(tmp_path, (2, 6, 6))
    code, rows, error = command("check", tmp_path, "--json")
    assert code == 0, (rows, error)


# The committed networks are what `from_torch` made (scripts/tiny_graphs.py): torch is no requirement of the tests.
if importlib.util.find_spec("torch"):

    def test_modules_of_torch(tmp_path):
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Hardswish(), torch.nn.Softmax(-1))

            def forward(self, x):
                return torch.cumsum(self.layers(x), 1)

        with pytest.raises(hushed.UsageError) as refused:
            nn.from_torch(Net(), torch.zeros(1, 6))
        listed = ("layers.1: Hardswish (use SiLU", "layers.2: Softmax (leave it out", "cumsum: cumsum")
        assert all(entry in str(refused.value) for entry in listed), refused.value
        net = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.GELU(approximate="tanh"))
        nn.from_torch(net, torch.zeros(1, 6)).save(tmp_path)
        code, rows, error = command("clear", tmp_path, "[1, 2, 3, 4, 5, 6]", "--json")
        assert code == 0, error
        expected = net(torch.tensor([[1.0, 2, 3, 4, 5, 6]]))[0].tolist()
        np.testing.assert_allclose(rows[0]["outputs"]["1"], expected, atol=1e-5)


def test_a_compiled_network_answers_under_a_key(tmp_path):
    net = saved(tmp_path / "mlp")
    inputs = np.sin(np.arange(24 * 6).reshape(24, 6) * 1.7)
    run = hushed.compile(tmp_path / "mlp", inputs[:20], work=tmp_path / "work", inputs=2)
    assert run.plan["parameters"] == "n15-shallow-16x40" and run.plan["inputs"] == 2
    evaluation = run.keygen()
    reply = run.run(run.encrypt(inputs[20:22]), keys=evaluation, threads=1)
    found = run.decrypt(reply)
    (tmp_path / "inputs.npy").unlink(missing_ok=True)
    np.save(tmp_path / "inputs.npy", inputs[20:22])
    code, rows, error = command("clear", tmp_path / "mlp", "--input", tmp_path / "inputs.npy", "--json")
    assert code == 0, error
    expected = np.array([row["outputs"]["last"] for row in rows[:2]])
    assert found.shape == (2, 3) and np.abs(found - expected).max() <= run.plan["error"]
    # Nothing is left but what belongs to the parties.
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["calibration-fhe.json", "keys", "manifest.json"]
    with pytest.raises(hushed.HushedError, match="already exists"):
        run.keygen()
    with pytest.raises(hushed.HushedError, match="number beyond"):
        run.encrypt(inputs[:1] * 1000)
    with pytest.raises(hushed.InputError):
        run.encrypt(np.zeros((1, 5)))
    with pytest.raises(hushed.HushedError):
        run.run(b"no request")
    with pytest.raises(hushed.UsageError):
        hushed.compile(tmp_path, inputs)
    # A module, in a folder that goes with the object.
    other = hushed.compile(net, inputs[:4])
    work = other.manifest.parent
    assert other.plan["input"] == {"name": "x", "shape": [6]} and work.is_dir()
    del other
    assert not work.exists()
