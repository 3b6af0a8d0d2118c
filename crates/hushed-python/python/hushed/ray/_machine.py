"""A machine's part of a run on several: what runs in an actor."""

import hashlib
import os
import pathlib
import time
from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import _native


class Files(NamedTuple):
    """The files of a run, as ``hushed run`` has them."""

    folder: pathlib.Path
    manifest: pathlib.Path
    keys: pathlib.Path
    request: pathlib.Path
    out: pathlib.Path
    calibration: Optional[pathlib.Path] = None
    secret: Optional[pathlib.Path] = None
    max_memory: Optional[int] = None
    threads: Optional[int] = None


def code() -> str:
    """A hash of what computes, by which the driver compares machines with itself."""
    digest = hashlib.sha256()
    for path in (_native.__file__, __file__):
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()


class Machine:
    """The actor."""

    def greet(self) -> Tuple[str, List[int], str]:
        """The machine's name in the cluster, the cores that it may use, and its code."""
        import ray

        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        return ray.get_runtime_context().get_node_id(), sorted(cores), code()

    def pin(self, cores: List[int]) -> None:
        """Keeps the threads that are made from now on to these cores."""
        os.sched_setaffinity(0, cores)

    def open(self, files: Files, division: str) -> str:
        self._worker = _native.RunWorker(files, division)
        return self._worker.list()

    def run(self, number: int, names: List[int], *values: Any) -> List[Any]:
        began = time.monotonic()
        made = self._worker.run(number, [(name, value.tobytes()) for name, value in zip(names, values)])
        return [time.monotonic() - began, *(np.frombuffer(value, np.uint8) for value in made)]
