"""Whole runs on Ray (``make test-ray``): a tiny model on an insecure ring, two workers on this machine, and what may
become of them. Everywhere the reply has the bytes of the command in one process, or there is none."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import hushed
from hushed import _native

# Ray reads them as it is imported.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64, RAY_USAGE_STATS_ENABLED="0")
ray = pytest.importorskip("ray")

import psutil  # noqa: E402, of Ray

import hushed.ray  # noqa: E402

TEXTS = ["hello", "a private world", "the sea is red!", "key 7 12", "is a no? the hello", "world", "the the sea", "a"]


def command(*arguments, **named):
    return subprocess.run(
        [sys.executable, "-m", "hushed", *map(str, arguments)], capture_output=True, text=True, timeout=300, **named
    )


def rows(*arguments):
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Offered:
    """A model's files, and a client's."""

    def __init__(self, folder, at):
        self.folder, self.at = folder, at
        sample, texts = at / "sample.txt", at / "texts.txt"
        words = " ".join(TEXTS).split()
        sample.write_text("".join(" ".join(words[i : i + 1 + i % 5]) + "\n" for i in range(16)))
        texts.write_text("\n".join(TEXTS) + "\n")
        calibration, manifest, public = at / "calibration.json", at / "manifest.json", at / "public"
        rows("calibrate", folder, "--protocol", "fhe", "--rows", 16, "--cosine", 0.999, "--input", sample, "--output", calibration)
        plan = ["plan", folder, "--protocol", "fhe", "--rows", 16, "--parameters", "insecure-test/9/14"]
        rows(*plan, "--calibration", calibration, "--manifest", manifest, "--public-model", public, "--public-embedding")
        self.run = dict(manifest=manifest, calibration=calibration, secret=at / "reply.secret", threads=1)
        for client in ["one", "other"]:
            keys, request = at / client / "keys", at / client / "request"
            rows("keygen", "--manifest", manifest, "--out", keys)
            rows("encrypt", "--manifest", manifest, "--public", public, "--keys", keys, "--input", texts, "--out", request)
        self.reply = at / "one" / "reply"
        rows(*self.arguments(self.reply))

    def files(self, out, client="one", **more):
        keys, request = self.at / client / "keys" / "evaluation.keys", self.at / client / "request"
        return {**self.run, "keys": keys, "request": request, "out": out, **more}

    def arguments(self, out, **more):
        options = self.files(out, **more).items()
        named = [(f"--{name.replace('_', '-')}", value) for name, value in options]
        return ["run", self.folder, *(word for pair in named for word in pair)]

    def on_ray(self, out, **more):
        return hushed.ray.run(self.folder, **self.files(out), **{"workers": 2, **more})


@pytest.fixture(scope="session")
def offered(folder, tmp_path_factory):
    return Offered(folder, tmp_path_factory.mktemp("offered"))


@pytest.fixture(scope="session")
def cluster():
    """A cluster of this machine, with a token. Returns its address."""
    context = ray.init(num_cpus=4, include_dashboard=False, object_store_memory=500 << 20, log_to_driver=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()


def actors():
    """The processes of workers."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or []).startswith("ray::Machine"):
            found.append(process)
    return found


class At:
    """Acts once, after so many ranges."""

    def __init__(self, count, act):
        self.count, self.act, self.seen = count, act, 0

    def __call__(self, done, of):
        self.seen += 1
        if self.seen == self.count:
            self.act()


def raised(kind, name, call, *arguments, **named):
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    assert (type(caught.value), caught.value.name) == (kind, name), caught.value
    return str(caught.value)


def test_two_workers_have_the_reply_of_one_process(offered, cluster, tmp_path):
    seen = []
    report = offered.on_ray(tmp_path / "reply", progress=lambda done, of: seen.append((done, of)))
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    assert report.ranges == len(seen) > 10 and report.given_again == 0
    assert report.bytes == offered.reply.stat().st_size
    assert len(report.busy) == 2 and min(report.busy) > 0 and sum(report.busy) <= 2 * report.seconds
    assert 0 < report.bytes_moved <= report.bytes_made and report.planned_moved > 0 and report.planned_seconds > 0
    assert seen == sorted(seen) and seen[-1][0] == pytest.approx(seen[-1][1])
    assert offered.on_ray(tmp_path / "reply") is None
    assert [path.name for path in tmp_path.iterdir()] == ["reply"]


def test_the_command_runs_on_ray(offered, cluster, tmp_path):
    on_ray = ["--ray", cluster, "--workers", 2]
    done = rows(*offered.arguments(tmp_path / "reply"), *on_ray)
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    assert done[0]["bytes"] == offered.reply.stat().st_size and len(done[0]["busy"]) == 2 and not done[0]["done_before"]
    assert rows(*offered.arguments(tmp_path / "reply"), *on_ray) == [{"done_before": True}]
    # Errors of the package are those of the command.
    other = command(*offered.arguments(tmp_path / "other", request=tmp_path / "none"), *on_ray, "--json")
    alone = command(*offered.arguments(tmp_path / "other", request=tmp_path / "none"), "--json")
    errors = [json.loads(one.stderr.splitlines()[-1]) for one in [other, alone]]
    assert errors[0] == errors[1] and other.returncode == alone.returncode != 0


def test_each_worker_has_cores_of_its_own(offered, cluster, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    found = []

    def look():
        threads = [thread for one in actors() for thread in one.threads()]
        found.extend(tuple(sorted(os.sched_getaffinity(thread.id))) for thread in threads)

    offered.on_ray(tmp_path / "reply", cores_per_worker=1, progress=At(20, look))
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    # Ray's own threads were there before.
    assert {one for one in found if len(one) == 1} == {(cores[0],), (cores[1],)}
    many = len(cores) // 2 + 1
    message = raised(hushed.UsageError, "limit", offered.on_ray, tmp_path / "none", cores_per_worker=many)
    assert str(2 * many) in message


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_worker_that_is_killed_costs_its_ranges(offered, cluster, tmp_path, checkpoint):
    more = dict(checkpoint=tmp_path / "checkpoints") if checkpoint else {}
    kill = At(40, lambda: actors()[0].kill())
    report = offered.on_ray(tmp_path / "reply", progress=kill, **more)
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    assert 1 <= report.given_again <= 2 and kill.seen > 40
    assert not checkpoint or list((tmp_path / "checkpoints").iterdir()) == []


def test_without_workers_a_run_ends_and_goes_on_later(offered, cluster, tmp_path):
    more = dict(checkpoint=tmp_path / "checkpoints")

    def kill():
        for one in actors():
            one.kill()

    whole = At(0, None)
    offered.on_ray(tmp_path / "whole", progress=whole)
    raised(hushed.NetworkError, "machine", offered.on_ray, tmp_path / "reply", progress=At(whole.seen * 3 // 4, kill), **more)
    assert not (tmp_path / "reply").exists()
    (saved,) = [path for path in (tmp_path / "checkpoints").iterdir()]
    (layer,) = saved.iterdir()
    # A value that is missing or damaged is not taken for one.
    value = next(path for path in layer.iterdir() if path.name.isdigit())
    whole_value = value.read_bytes()
    value.unlink()
    assert "remove the folder" in raised(hushed.LocalError, "file-damaged", offered.on_ray, tmp_path / "reply", **more)
    value.write_bytes(whole_value[:-1] + bytes([whole_value[-1] ^ 1]))
    raised(hushed.LocalError, "file-damaged", offered.on_ray, tmp_path / "reply", **more)
    assert not (tmp_path / "reply").exists()
    value.write_bytes(whole_value)
    rest = At(0, None)
    offered.on_ray(tmp_path / "reply", progress=rest, **more)
    assert 0 < rest.seen < whole.seen and (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()


@pytest.mark.parametrize("killed", ["command", "driver"])
def test_a_driver_that_is_killed_goes_on(offered, cluster, tmp_path, killed):
    """The command, or its process of Python, is killed after a layer; the same one goes on. Another is refused."""
    checkpoints = tmp_path / "checkpoints"
    arguments = [*offered.arguments(tmp_path / "reply", checkpoint=checkpoints), "--ray", cluster, "--workers", 2]
    first = subprocess.Popen([sys.executable, "-m", "hushed", *map(str, arguments), "--json"])
    refused = None
    while not any(path.is_dir() and list(path.glob("*/done.json")) for path in checkpoints.glob("*")):
        assert first.poll() is None, "it ended before it could be killed"
        if refused is None and list(checkpoints.glob("*.lock")):
            refused = command(*arguments, "--json")
        time.sleep(0.002)
    (first if killed == "command" else psutil.Process(first.pid).children()[0]).kill()
    assert first.wait() != 0
    error = json.loads(refused.stderr.splitlines()[-1])["error"]
    assert (refused.returncode, error["name"]) == (8, "busy")
    for _ in range(200):
        again = command(*arguments, "--json")
        # The process that computed ends on its own.
        if "busy" not in again.stderr:
            break
        time.sleep(0.05)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    whole = offered.on_ray(tmp_path / "whole")
    assert json.loads(again.stdout)["ranges"] < whole.ranges


def test_a_worker_that_does_not_go_on_is_helped(offered, cluster, tmp_path):
    stopped = []

    def stop():
        stopped.append(actors()[0])
        stopped[0].send_signal(signal.SIGSTOP)

    try:
        report = offered.on_ray(tmp_path / "reply", progress=At(30, stop))
    finally:
        for one in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    assert (tmp_path / "reply").read_bytes() == offered.reply.read_bytes()
    assert 1 <= report.given_again <= 4


def test_workers_of_another_run_or_code_are_refused(offered, cluster, tmp_path, monkeypatch):
    seen = []
    more = dict(progress=lambda done, of: seen.append(done))

    with monkeypatch.context() as patch:
        other = {name: offered.files(None, "other")[name] for name in ["keys", "request"]}
        patch.setattr(_native, "RunDriver", lambda files, made=_native.RunDriver: made(files._replace(**other)))
        raised(hushed.MismatchError, "other-run", offered.on_ray, tmp_path / "reply", **more)
    with monkeypatch.context() as patch:
        patch.setattr(hushed.ray, "code", lambda: "0" * 64)
        raised(hushed.MismatchError, "other-code", offered.on_ray, tmp_path / "reply", **more)
    assert seen == [] and not (tmp_path / "reply").exists()


def test_clusters_that_are_none(offered, cluster, tmp_path):
    none = ["--ray", "127.0.0.1:1", "--workers", 2, "--json"]
    done = command(*offered.arguments(tmp_path / "reply"), *none)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["name"]) == (5, "no-cluster") and "127.0.0.1:1" in error["message"]
    # What answers is not Ray.
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = command(*offered.arguments(tmp_path / "reply"), "--ray", f"127.0.0.1:{port}", "--workers", 2, "--json")
    assert json.loads(done.stderr.splitlines()[-1])["error"]["name"] == "no-cluster", done.stderr
    # Another token.
    environment = {**os.environ, "RAY_AUTH_TOKEN": "b" * 64}
    done = command(*offered.arguments(tmp_path / "reply"), "--ray", cluster, "--workers", 2, "--json", env=environment)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["name"]) == (5, "no-cluster"), done.stderr
    # More workers than there are processors for.
    assert "5" in raised(hushed.UsageError, "limit", offered.on_ray, tmp_path / "reply", workers=5)
    assert not (tmp_path / "reply").exists()


def test_the_command_needs_the_package(offered, tmp_path):
    on_ray = ["--ray", "127.0.0.1:1", "--json", "--python"]
    script = tmp_path / "other"
    script.write_text("#!/bin/sh\necho '{\"version\": \"0.0.1\"}'\n")
    script.chmod(0o755)
    for python, why in [("/no/such/python", "No such file"), ("false", "no package"), (script, "0.0.1")]:
        done = command(*offered.arguments(tmp_path / "reply"), *on_ray, python)
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert (done.returncode, error["name"]) == (2, "no-ray") and why in error["message"], done.stderr
    for wrong in [["--workers", 2], ["--ray", "a", "--spill", tmp_path], ["--ray", "a", "--steps"], ["--ray", "a", "--workers", 0]]:
        assert command(*offered.arguments(tmp_path / "reply"), *wrong).returncode == 2
