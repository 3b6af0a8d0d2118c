"""A network of one's own under encryption, from samples to decrypted answers."""

import io
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, Optional, Union

import numpy as np

from . import _native
from ._errors import UsageError
from ._settings import PathLike, at_least
from .nn import Module, from_onnx, from_torch


def _bytes(values: Any) -> bytes:
    """The numbers as a file of numpy."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(_array(values), dtype="<f8"))
    return file.getvalue()


def _array(values: Any) -> Any:
    detach = getattr(values, "detach", None)
    return values if detach is None else detach().cpu().double().numpy()


class Compiled:
    """A network with its parameters, of :func:`compile`. Each party needs a part of it:

    ============  ==================================================================================
    server        ``folder``, ``calibration``, ``manifest`` and a client's ``evaluation.keys``: `run`
    client        ``manifest`` and the folder of keys: `keygen`, `encrypt`, `decrypt`
    ============  ==================================================================================
    """

    def __init__(self, folder: pathlib.Path, work: pathlib.Path, kept: Optional[Any]) -> None:
        self.folder = folder
        self.calibration = work / "calibration-fhe.json"
        self.manifest = work / "manifest.json"
        self.keys = work / "keys"
        self._work = work
        # Deleted with this object, if the caller named no folder.
        self._kept = kept
        self._files = 0

    @property
    def plan(self) -> Dict[str, Any]:
        """What the manifest says: parameters, packing, keys, the declared error, and who sees what."""
        planned: Dict[str, Any] = json.loads(self.manifest.read_text())["network"]
        return planned

    def keygen(self, *, days: int = 90) -> pathlib.Path:
        """Makes a client's keys; returns the file that the server needs. The secret key stays beside it."""
        _native.network_keygen(self.manifest, self.keys, at_least(1, days, "days"))
        return self.keys / "evaluation.keys"

    def encrypt(self, x: Any) -> bytes:
        """The request for one input, or for several along the first dimension."""
        path = self._file("request")
        _native.network_encrypt(self.manifest, self.keys, _bytes(x), path)
        return _taken(path)

    def run(self, request: bytes, *, keys: Optional[PathLike] = None, threads: Optional[int] = None) -> bytes:
        """The server's part: the reply to a request. ``keys`` is a client's ``evaluation.keys``."""
        sent, reply = self._file("request"), self._file("reply")
        sent.write_bytes(request)
        try:
            _native.network_run(
                self.folder,
                self.calibration,
                self.manifest,
                pathlib.Path(keys) if keys is not None else self.keys / "evaluation.keys",
                sent,
                reply,
                None if threads is None else at_least(1, threads, "threads"),
            )
        finally:
            sent.unlink()
        return _taken(reply)

    def decrypt(self, reply: bytes) -> Union[np.ndarray, Dict[str, np.ndarray]]:
        """The answers, with a first dimension that counts inputs; of several outputs a dict by their names.

        Numbers are rounded to what the manifest certifies. Do not publish them with an error: each decryption reveals
        a little about the secret key.
        """
        path = self._file("reply")
        path.write_bytes(reply)
        try:
            inputs = _native.network_decrypt(self.manifest, self.keys, path)
        finally:
            path.unlink()
        names = [port["name"] for port in self.plan["outputs"]]
        outputs = [np.array([np.reshape(numbers, shape) for shape, numbers in output]) for output in zip(*inputs)]
        return outputs[0] if len(outputs) == 1 else dict(zip(names, outputs))

    def _file(self, kind: str) -> pathlib.Path:
        self._files += 1
        return self._work / f"{os.getpid()}-{self._files}.{kind}"


def _taken(path: pathlib.Path) -> bytes:
    """The bytes of a file, which is deleted."""
    content = path.read_bytes()
    path.unlink()
    return content


def compile(
    network: Any,
    sample: Any,
    *,
    work: Optional[PathLike] = None,
    inputs: int = 1,
    parameters: Optional[str] = None,
) -> Compiled:
    """Measures a network on ``sample`` and chooses parameters for runs under encryption.

    ``network`` is a folder with ``graph.json``, an ONNX file, a module of ``hushed.nn`` or of torch, or a network of
    :func:`from_torch` or :func:`from_onnx`. ``sample`` has inputs like those to come, one in each entry of its first
    dimension; polynomials are fitted to what they reach.
    ``work`` is a folder for the calibration, the manifest and keys; without it they are deleted with the object.
    ``inputs`` is how many a request may have, and ``parameters`` a set, if not the cheapest that can run the network.
    """
    kept = None
    if work is None:
        kept = tempfile.TemporaryDirectory(prefix="hushed-")
        work = kept.name
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    if isinstance(network, (str, os.PathLike)) and pathlib.Path(network).suffix == ".onnx":
        network = from_onnx(network)
    if isinstance(network, (str, os.PathLike)):
        folder = pathlib.Path(network)
        if not _native.is_network(folder):
            raise UsageError(f"{folder} has no graph.json: hushed.nn writes such folders (docs/networks.md)", "usage")
    else:
        folder = work / "network"
        if isinstance(network, Module):
            network = network.trace(np.shape(_array(sample))[1:])
        elif not hasattr(network, "save"):
            network = from_torch(network, _first(sample))
        network.save(folder)
    made = Compiled(folder, work, kept)
    _native.network_plan(
        folder, _bytes(sample), at_least(1, inputs, "inputs"), parameters, made.calibration, made.manifest
    )
    return made


def _first(sample: Any) -> Any:
    """The first entry of a sample, with a batch dimension."""
    import torch

    return torch.as_tensor(np.asarray(_array(sample))[:1], dtype=torch.float32)
