"""Which machine runs which range of a run, and what becomes of values."""

import collections
import errno
import json
import os
import pathlib
import shutil
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import numpy as np

from .._errors import HushedError, LocalError, NetworkError

#: Ranges that a machine has at a time: one that it runs, and one whose values are fetched meanwhile.
_DEPTH = 2
#: Machines that a range is given to, one after the other, before the run ends.
_TRIES = 3
#: A range that takes so many times as long as the others by its plan is run by an idle machine as well.
_STRAGGLES = 3.0


class Ranges:
    """Who runs what. A value is kept until all ranges that read it are done."""

    def __init__(
        self,
        ray: Any,
        actors: List[Any],
        text: str,
        saved: Optional[pathlib.Path],
        in_flight: int,
        progress: Optional[Callable[[float, float], Any]],
    ) -> None:
        listed = json.loads(text)
        self.ray, self.in_flight, self.progress = ray, in_flight, progress
        self.saved = None if saved is None else saved / listed["work"]
        self.ranges: List[Dict[str, Any]] = listed["ranges"]
        self.actors: Dict[int, Any] = dict(enumerate(actors))
        self.busy = [0.0] * len(actors)
        self.given = self.again = self.made = self.moved = 0
        written = [(number, value) for number, one in enumerate(self.ranges) for value in one["writes"]]
        self.maker: Dict[int, int] = {value["value"]: number for number, value in written}
        self.bytes: Dict[int, int] = {value["value"]: value["bytes"] for _, value in written}
        self.answers = [value["value"] for _, value in written if value["answers"]]
        self.readers: Dict[int, List[int]] = collections.defaultdict(list)
        for number, one in enumerate(self.ranges):
            for value in one["reads"]:
                self.readers[value].append(number)
        self.values: Dict[int, Any] = {}
        # The machines that have a value.
        self.at: Dict[int, Set[int]] = collections.defaultdict(set)
        self.done: Set[int] = set()
        self.tries: Dict[int, int] = collections.Counter()
        # What a machine was given, by the first of the results: the range, the machine, since when, the values.
        self.running: Dict[Any, Tuple[int, int, float, List[Any]]] = {}
        self.paces: List[float] = []
        self.layers = 0
        self._restore()

    def all(self) -> Dict[int, Any]:
        """Runs all ranges. Returns the values of the reply."""
        while True:
            while len(self.done) < len(self.ranges):
                self._give()
                ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=1.0)
                for first in ready:
                    self._take(first)
            try:
                return {name: self.ray.get(self.values[name]) for name in self.answers}
            except self.ray.exceptions.RayError as error:
                for maker in {self.maker[name] for name in self.answers}:
                    self.done.discard(maker)
                    self._missing(maker)
                    self._failed(maker, error)

    def forget(self) -> None:
        """Removes the checkpoints of a run whose reply is there."""
        if self.saved is not None:
            shutil.rmtree(self.saved, ignore_errors=True)

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
            if long and copies[number] == 1 and number not in self.done:
                self.again += 1
                return self._send(number, machine)

    def _send(self, number: int, machine: int) -> None:
        one = self.ranges[number]
        made = self.actors[machine].run.options(num_returns=1 + len(one["writes"]))
        refs = made.remote(number, one["reads"], *(self.values[name] for name in one["reads"]))
        refs = refs if isinstance(refs, list) else [refs]
        self.given += 1
        for name in one["reads"]:
            self.moved += 0 if machine in self.at[name] else self.bytes[name]
            self.at[name].add(machine)
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
            self.values[written["value"]], self.at[written["value"]] = ref, {machine}
            self.made += written["bytes"]
        for name in [*one["reads"], *(written["value"] for written in one["writes"])]:
            if name not in self.answers and all(reader in self.done for reader in self.readers[name]):
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
        """What a range reads was on a machine that is lost, or some of it: it is made again."""
        for name in self.ranges[number]["reads"]:
            self.values.pop(name, None)
        if number not in self.done:
            self._missing(number)

    def _missing(self, number: int) -> None:
        """Runs again what makes the values that a range reads, as far as they are not there."""
        left = [number]
        while left:
            for name in self.ranges[left.pop()]["reads"]:
                if name not in self.values and self.maker[name] in self.done:
                    self.done.discard(self.maker[name])
                    left.append(self.maker[name])

    def _save(self) -> None:
        """After each whole layer, keeps what the ranges that are left read, and what there is of the reply."""
        whole = next((number for number in range(len(self.ranges)) if number not in self.done), len(self.ranges))
        layers = sum(1 for one in self.ranges[:whole] if one["ends_layer"])
        if self.saved is None or layers <= self.layers or whole == len(self.ranges):
            return
        draft = self.saved / f"{layers}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            for name, ref in self.values.items():
                self.ray.get(ref).tofile(draft / str(name))
            (draft / "done.json").write_text(json.dumps(sorted(self.done)))
            os.rename(draft, self.saved / str(layers))
        except self.ray.exceptions.RayError:
            return  # Lost: the ranges that read it say so.
        except OSError as error:
            name = "disk-full" if error.errno == errno.ENOSPC else "file-unwritable"
            raise LocalError(f"a checkpoint could not be written in {draft}: {error}", name) from error
        self.layers = layers
        for old in self.saved.iterdir():
            if old.name != str(layers):
                shutil.rmtree(old, ignore_errors=True)

    def _restore(self) -> None:
        there = [] if self.saved is None or not self.saved.exists() else list(self.saved.iterdir())
        found = [folder for folder in there if folder.name.isdigit()]
        if not found:
            return
        last = max(found, key=lambda folder: int(folder.name))
        try:
            self.done = set(json.loads((last / "done.json").read_text()))
            for path in last.iterdir():
                if path.name.isdigit():
                    self.values[int(path.name)] = self.ray.put(np.fromfile(path, np.uint8))
            needed = [v for n, one in enumerate(self.ranges) if n not in self.done for v in one["reads"]]
            if not all(v in self.values for v in [*needed, *self.answers] if self.maker[v] in self.done):
                raise ValueError("values are missing")
        except (OSError, TypeError, ValueError) as error:
            raise LocalError(f"{last}: no checkpoint: {error}; remove the folder to begin anew", "file-damaged") from error
        self.layers = int(last.name)
