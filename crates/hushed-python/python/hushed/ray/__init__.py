"""One run under encryption on several machines, on Ray: ``pip install 'hushed[ray]'``.

>>> hushed.ray.run("model", manifest="manifest.json", keys="evaluation.keys", request="request", out="reply")

Every machine reads model, manifest, keys and request from its own disk, at the same paths. What Ray moves and stores is
ciphertexts under the client's keys and hashes: no weight, no key, no text. The reply has the bytes of ``hushed run``.
"""

import contextlib
import json
import logging
import os
import pathlib
import socket
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from .. import _native
from .._errors import HushedError, LocalError, MismatchError, NetworkError, UsageError
from .._settings import PathLike
from ._machine import Files, Machine, code
from ._ranges import Ranges

__all__ = ["Report", "run"]


class Report(NamedTuple):
    """What a run took."""

    request: str
    """The request's id."""
    bytes: int
    """Bytes of the reply."""
    seconds: float
    """From the call to the reply."""
    planned_seconds: float
    """From the first range to the last, by the simulation, at the plan's prices."""
    ready: float
    """Seconds until the machines had read keys and model."""
    ranges: int
    """Ranges that were run, those that were run twice included."""
    given_again: int
    """Ranges that went to another machine: theirs was lost, failed, or was slow."""
    bytes_made: int
    """Bytes of the values that ranges made for others."""
    bytes_moved: int
    """Bytes of values that a machine read of another, each value once for each machine."""
    planned_moved: int
    """The same by the simulation."""
    busy: List[float]
    """Seconds that each machine computed."""


def run(
    folder: PathLike,
    *,
    manifest: PathLike,
    keys: PathLike,
    request: PathLike,
    out: PathLike,
    address: Optional[str] = "auto",
    workers: Optional[int] = None,
    checkpoint: Optional[PathLike] = None,
    calibration: Optional[PathLike] = None,
    secret: Optional[PathLike] = None,
    threads: Optional[int] = None,
    cores_per_worker: Optional[int] = None,
    max_memory: Optional[int] = None,
    bytes_per_second: float = 1.25e9,
    in_flight: int = 4096,
    progress: Optional[Callable[[float, float], Any]] = None,
) -> Optional[Report]:
    """Runs a request on the machines of a Ray cluster and writes the reply; ``None`` if the reply was there already.

    There is one worker for each machine of the cluster unless ``workers`` is given. ``threads`` are those of each; with
    ``cores_per_worker`` each stays on so many cores of its machine, which no other has, and has as many threads. With
    ``checkpoint``, a folder, the same call continues after the last whole layer. At most ``in_flight`` values are made
    ahead. ``progress(done, of)`` is called with planned seconds.
    """
    began = time.monotonic()
    try:
        import ray
    except ImportError:
        raise UsageError("a run on several machines needs Ray: pip install 'hushed[ray]'", "no-ray") from None
    for name, number in [("workers", workers), ("threads", threads), ("cores_per_worker", cores_per_worker)]:
        if number is not None and number < 1:
            raise UsageError(f"{name} is {number}, and has to be 1 or more", "limit")
    absolute = [pathlib.Path(path).absolute() for path in (folder, manifest, keys, request, out)]
    optional = [path if path is None else pathlib.Path(path).absolute() for path in (calibration, secret)]
    threads = threads or cores_per_worker
    files = Files(*absolute, *optional, max_memory, threads)
    driver = _native.RunDriver(files)
    saved = None if checkpoint is None else pathlib.Path(checkpoint)
    with _locked(saved or files.out.parent, driver.run):
        if driver.answered():
            return None
        with _connected(ray, address):
            actors = _actors(ray, workers, threads or 1)
            try:
                _placed(ray, actors, cores_per_worker)
                division = driver.divide(len(actors), bytes_per_second)
                lists = _all(ray, [one.open.remote(files._replace(secret=None), division) for one in actors])
                if len(set(lists)) != 1 or json.loads(lists[0])["run"] != driver.run:
                    message = "machines have other programs, manifests, keys or requests than the driver: nothing was run"
                    raise MismatchError(message, "other-run")
                ready = time.monotonic() - began
                ranges = Ranges(ray, actors, lists[0], saved, in_flight, progress)
                values = [(name, value.tobytes()) for name, value in ranges.all().items()]
                size, _ = driver.seal(lists[0], values)
                ranges.forget()
            finally:
                for one in actors:
                    ray.kill(one)
    planned = json.loads(division)
    return Report(
        request=driver.request,
        bytes=size,
        seconds=time.monotonic() - began,
        planned_seconds=planned["seconds"],
        ready=ready,
        ranges=ranges.given,
        given_again=ranges.again,
        bytes_made=ranges.made,
        bytes_moved=ranges.moved,
        planned_moved=planned["moved"],
        busy=ranges.busy,
    )


@contextlib.contextmanager
def _connected(ray: Any, address: Optional[str]) -> Iterator[None]:
    """A connection to the cluster; one that is there already stays."""
    if ray.is_initialized():
        yield
        return
    try:
        host, _, port = (address or "").rpartition(":")
        if host and "/" not in host:
            # Ray tries for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Of Ray, of gRPC, of sockets.
        ray.shutdown()
        raise NetworkError(f"no Ray cluster at {address!r} takes this program: {error}", "no-cluster") from error
    try:
        yield
    finally:
        ray.shutdown()


def _actors(ray: Any, workers: Optional[int], cpus: int) -> List[Any]:
    count = workers or sum(1 for node in ray.nodes() if node["Alive"])
    there = int(ray.cluster_resources().get("CPU", 0))
    if count * cpus > there:
        message = f"{count} workers of {cpus} processors each need {count * cpus}, and the Ray cluster has {there}"
        raise UsageError(message, "limit")
    # A worker's range is given to another by `Ranges`, never again to the same.
    kind = ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Machine)
    return [kind.remote() for _ in range(count)]


def _placed(ray: Any, actors: List[Any], cores: Optional[int]) -> None:
    """Compares the code of the machines, and keeps each to cores of its own."""
    found = _all(ray, [one.greet.remote() for one in actors])
    if any(theirs != code() for _, _, theirs in found):
        message = "machines have other builds of the package hushed than the driver: nothing was run"
        raise MismatchError(message, "other-code")
    if cores is None:
        return
    taken: Dict[str, int] = {}
    pinned = []
    for one, (node, there, _) in zip(actors, found):
        first = taken.get(node, 0)
        taken[node] = first + cores
        if taken[node] > len(there):
            raise UsageError(f"a machine has {len(there)} cores, and its workers would have {taken[node]}", "limit")
        pinned.append(one.pin.remote(there[first : first + cores]))
    _all(ray, pinned)


def _all(ray: Any, refs: List[Any]) -> List[Any]:
    """What all machines answer before the run."""
    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, HushedError) else NetworkError(str(error), "machine")) from None
    except ray.exceptions.RayError as error:
        raise NetworkError(f"a machine was lost before it was ready: {error}", "machine") from None


@contextlib.contextmanager
def _locked(folder: pathlib.Path, run: str) -> Iterator[None]:
    """A lock of the run in this folder: one driver at a time."""
    import fcntl

    path = folder / f"{run[:32]}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(path, "w")
    except OSError as error:
        raise LocalError(f"{path} could not be made: {error}", "file-unwritable") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Not the file that a driver removed as it ended.
            free = path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())
        except BlockingIOError:
            free = False
        except OSError as error:
            raise LocalError(f"{path} cannot be locked: {error}", "no-locks") from error
        if not free:
            raise LocalError(f"another driver is at this run: {path} is locked", "busy")
        try:
            yield
        finally:
            path.unlink()
