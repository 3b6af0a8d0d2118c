"""One run on several machines, as far as it goes without Ray and without keys: what is refused before any work."""

import sys

import pytest

import hushed
import hushed.ray


def files(tmp_path):
    names = ["manifest", "keys", "request", "out"]
    return {name: tmp_path / name for name in names}


def test_without_ray_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(hushed.UsageError, match=r"hushed\[ray\]") as caught:
        hushed.ray.run(tmp_path, **files(tmp_path))
    assert caught.value.name == "no-ray"


def test_files_are_read_before_a_cluster_is_asked(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(hushed.LocalError):
        hushed.ray.run(tmp_path, **files(tmp_path), address="127.0.0.1:1")


def test_checkpoints_have_one_driver(tmp_path):
    with hushed.ray._locked(tmp_path), pytest.raises(hushed.LocalError) as caught:
        with hushed.ray._locked(tmp_path):
            pass
    assert caught.value.name == "busy"
    with hushed.ray._locked(tmp_path) as folder:
        assert folder == tmp_path
