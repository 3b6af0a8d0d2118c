"""One run under encryption on several machines, on Ray: ``pip install 'hushed[ray]'``.

>>> hushed.ray.run("model", manifest="manifest.json", keys="evaluation.keys", request="request", out="reply")

Every machine reads model, manifest, keys and request from its own disk, at the same paths. What Ray moves and stores is
ciphertexts under the client's keys and hashes: no weight, no key, no text. The reply has the bytes of ``hushed run``.
"""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from . import _native
from ._errors import HushedError, LocalError, MismatchError, NetworkError, UsageError
from ._settings import PathLike

#: Ranges that a machine has at a time: one that it runs, and one whose values are fetched meanwhile.
_DEPTH = 2
#: Machines that a range is given to, one after the other, before the run ends.
_TRIES = 3
#: A range that takes so many times as long as the others by its plan is run by an idle machine as well.
_STRAGGLES = 3.0


class Files(NamedTuple):
    """The files of a run, as ``hushed run`` has them."""

    folder: PathLike
    manifest: PathLike
    keys: PathLike
    request: PathLike
    out: PathLike
    calibration: Optional[PathLike] = None
    secret: Optional[PathLike] = None
    max_memory: Optional[int] = None
    threads: Optional[int] = None


class Report(NamedTuple):
    """What a run took."""

    seconds: float
    """From the call to the reply."""
    ranges: int
    """Ranges that were run, those that were run twice included."""
    given_again: int
    """Ranges that went to another machine: theirs was lost, failed, or was slow."""
    bytes_made: int
    """Bytes of the values that ranges made for others."""
    busy: List[float]
    """Seconds that each machine computed."""


class Machine:
    """A machine's part of a run: the actor."""

    def open(self, files: Files, division: str) -> str:
        self._worker = _native.RunWorker(files, division)
        return self._worker.list()

    def run(self, number: int, names: List[int], *values: Any) -> List[Any]:
        began = time.monotonic()
        made = self._worker.run(number, [(name, value.tobytes()) for name, value in zip(names, values)])
        return [time.monotonic() - began, *(np.frombuffer(value, np.uint8) for value in made)]


def run(
    folder: PathLike,
    *,
    manifest: PathLike,
    keys: PathLike,
    request: PathLike,
    out: PathLike,
    address: Optional[str] = "auto",
    machines: Optional[int] = None,
    checkpoint: Optional[PathLike] = None,
    calibration: Optional[PathLike] = None,
    secret: Optional[PathLike] = None,
    threads: Optional[int] = None,
    max_memory: Optional[int] = None,
    bytes_per_second: float = 1.25e9,
    in_flight: int = 4096,
    progress: Optional[Callable[[float, float], Any]] = None,
) -> Optional[Report]:
    """Runs a request on the machines of a Ray cluster and writes the reply; ``None`` if the reply was there already.

    ``threads`` are those of each machine. With ``checkpoint``, a folder, the same call continues after the last whole
    layer. At most ``in_flight`` values are made ahead. ``progress(done, of)`` is called with planned seconds.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("a run on several machines needs Ray: pip install 'hushed[ray]'", "no-ray") from None
    absolute = [pathlib.Path(path).absolute() for path in (folder, manifest, keys, request, out)]
    optional = [path if path is None else pathlib.Path(path).absolute() for path in (calibration, secret)]
    files = Files(*absolute, *optional, max_memory, threads)
    driver = _native.RunDriver(files)
    if driver.answered():
        return None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False)
        except Exception as error:  # Ray raises many kinds, of its own and of gRPC.
            raise NetworkError(f"there is no Ray cluster at {address!r}: {error}", "no-cluster") from error
    count = machines or sum(1 for node in ray.nodes() if node["Alive"])
    division = driver.divide(count, bytes_per_second)
    actor = ray.remote(num_cpus=threads or 1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Machine)
    actors = [actor.remote() for _ in range(count)]
    try:
        with _locked(checkpoint) as saved:
            lists = _opened(ray, [one.open.remote(files._replace(secret=None), division) for one in actors])
            if len(set(lists)) != 1 or json.loads(lists[0])["run"] != driver.run:
                message = "machines have other programs, manifests, keys or requests than the driver: nothing was run"
                raise MismatchError(message, "other-run")
            state = _Run(ray, actors, lists[0], saved, in_flight, progress)
            answer = state.all()
            values = [(name, value.tobytes()) for name, value in answer.items()]
            _, seconds = driver.seal(lists[0], values)
            if saved is not None:
                shutil.rmtree(saved / state.work, ignore_errors=True)
            return Report(seconds, state.given, state.again, state.made, state.busy)
    finally:
        for one in actors:
            ray.kill(one)


def _opened(ray: Any, refs: List[Any]) -> List[str]:
    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, HushedError) else NetworkError(str(error), "machine")) from None
    except ray.exceptions.RayError as error:
        raise NetworkError(f"a machine was lost before it was ready: {error}", "machine") from None


@contextlib.contextmanager
def _locked(checkpoint: Optional[PathLike]) -> Iterator[Optional[pathlib.Path]]:
    """The folder of checkpoints, which one driver uses at a time."""
    if checkpoint is None:
        yield None
        return
    import fcntl

    folder = pathlib.Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "ray.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LocalError(f"{folder} is used by another driver", "busy") from None
        yield folder


class _Run:
    """Who runs what. A value is kept until all ranges that read it are done."""

    def __init__(
        self, ray: Any, actors: List[Any], text: str, saved: Optional[pathlib.Path], in_flight: int, progress: Any
    ) -> None:
        listed = json.loads(text)
        self.ray, self.saved, self.in_flight, self.progress = ray, saved, in_flight, progress
        self.work: str = listed["work"]
        self.ranges: List[Dict[str, Any]] = listed["ranges"]
        self.actors: Dict[int, Any] = dict(enumerate(actors))
        self.busy = [0.0] * len(actors)
        self.given = self.again = self.made = 0
        written = [(number, value) for number, one in enumerate(self.ranges) for value in one["writes"]]
        self.maker: Dict[int, int] = {value["value"]: number for number, value in written}
        self.answers = [value["value"] for _, value in written if value["answers"]]
        self.readers: Dict[int, List[int]] = collections.defaultdict(list)
        for number, one in enumerate(self.ranges):
            for value in one["reads"]:
                self.readers[value].append(number)
        self.values: Dict[int, Any] = {}
        self.done: Set[int] = set()
        self.tries: Dict[int, int] = collections.Counter()
        self.running: Dict[Any, Tuple[int, int, float, List[Any]]] = {}
        self.paces: List[float] = []
        self.layers = 0
        self._restore()

    def all(self) -> Dict[int, Any]:
        """Runs all ranges. Returns the values of the reply."""
        while len(self.done) < len(self.ranges):
            self._give()
            ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=1.0)
            for first in ready:
                self._take(first)
        return {name: self.ray.get(self.values[name]) for name in self.answers}

    def _give(self) -> None:
        """Gives ranges to machines: their own first, and any to an idle one."""
        if not self.actors:
            raise NetworkError("all machines are lost; the same call continues from the checkpoint", "machine")
        load = collections.Counter(machine for _, machine, _, _ in self.running.values())
        under_way = {number for number, _, _, _ in self.running.values()}
        ready = []
        for number, one in enumerate(self.ranges):
            if number not in self.done and number not in under_way and all(v in self.values for v in one["reads"]):
                ready.append(number)
        for machine in sorted(self.actors, key=lambda machine: load[machine]):
            while load[machine] < _DEPTH and ready:
                if self.running and len(self.values) >= self.in_flight:
                    break
                own = [number for number in ready if self.ranges[number]["machine"] == machine]
                if not own and load[machine]:
                    break
                number = (own or ready)[0]
                ready.remove(number)
                self._send(number, machine)
                load[machine] += 1
            if not load[machine] and not ready:
                self._help(machine)

    def _help(self, machine: int) -> None:
        """An idle machine runs what another is slow with."""
        pace, now = (sorted(self.paces)[len(self.paces) // 2] if self.paces else None), time.monotonic()
        copies = collections.Counter(number for number, _, _, _ in self.running.values())
        for number, _, since, _ in list(self.running.values()):
            long = pace is not None and now - since > max(1.0, _STRAGGLES * _DEPTH * pace * self.ranges[number]["seconds"])
            if long and copies[number] == 1:
                self.again += 1
                return self._send(number, machine)

    def _send(self, number: int, machine: int) -> None:
        one = self.ranges[number]
        made = self.actors[machine].run.options(num_returns=1 + len(one["writes"]))
        refs = made.remote(number, one["reads"], *(self.values[name] for name in one["reads"]))
        refs = refs if isinstance(refs, list) else [refs]
        self.given += 1
        self.running[refs[0]] = (number, machine, time.monotonic(), refs[1:])

    def _take(self, first: Any) -> None:
        """What has become of a range."""
        number, machine, _, refs = self.running.pop(first)
        one, errors = self.ranges[number], self.ray.exceptions
        try:
            seconds = self.ray.get(first)
            if isinstance(seconds, list):
                (seconds,) = seconds
        except errors.RayActorError as error:
            self.actors.pop(machine, None)
            return self._failed(number, error)
        except errors.RayTaskError as error:
            if isinstance(error.cause, (errors.ObjectLostError, errors.ObjectFetchTimedOutError)):
                self._lost(number)
            return self._failed(number, error.cause if isinstance(error.cause, HushedError) else error)
        except errors.RayError as error:
            self._lost(number)
            return self._failed(number, error)
        self.busy[machine] += seconds
        if number in self.done:
            return
        self.done.add(number)
        self.paces.append(seconds / max(one["seconds"], 1e-9))
        for written, ref in zip(one["writes"], refs):
            self.values[written["value"]] = ref
            self.made += written["bytes"]
        for name in one["reads"]:
            if all(reader in self.done for reader in self.readers[name]):
                self.values.pop(name, None)
        if self.progress is not None:
            self.progress(sum(self.ranges[n]["seconds"] for n in self.done), sum(o["seconds"] for o in self.ranges))
        self._save()

    def _failed(self, number: int, error: Exception) -> None:
        if number in self.done:
            return
        self.again += 1
        self.tries[number] += 1
        if self.tries[number] >= _TRIES:
            raise error if isinstance(error, HushedError) else NetworkError(str(error), "machine")

    def _lost(self, number: int) -> None:
        """Values that a range reads were on a machine that is lost: they are made again."""
        for name in self.ranges[number]["reads"]:
            maker = self.maker[name]
            self.values.pop(name, None)
            if maker in self.done:
                self.done.discard(maker)
                if any(value not in self.values for value in self.ranges[maker]["reads"]):
                    self._lost(maker)

    def _save(self) -> None:
        """After each whole layer, keeps what the ranges that are left read, and what there is of the reply."""
        whole = next((number for number in range(len(self.ranges)) if number not in self.done), len(self.ranges))
        layers = sum(1 for one in self.ranges[:whole] if one["ends_layer"])
        if self.saved is None or layers <= self.layers or whole == len(self.ranges):
            return
        self.layers, folder = layers, self.saved / self.work
        draft = folder / f"{layers}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, ref in self.values.items():
            self.ray.get(ref).tofile(draft / str(name))
        (draft / "done.json").write_text(json.dumps(sorted(self.done)))
        os.rename(draft, folder / str(layers))
        for old in folder.iterdir():
            if old.name != str(layers):
                shutil.rmtree(old, ignore_errors=True)

    def _restore(self) -> None:
        folder = None if self.saved is None else self.saved / self.work
        found = [] if folder is None or not folder.exists() else [f for f in folder.iterdir() if f.name.isdigit()]
        if not found:
            return
        last = max(found, key=lambda f: int(f.name))
        self.layers = int(last.name)
        self.done = set(json.loads((last / "done.json").read_text()))
        for path in last.iterdir():
            if path.name.isdigit():
                self.values[int(path.name)] = self.ray.put(np.fromfile(path, np.uint8))
