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


def test_a_run_has_one_driver(tmp_path):
    with hushed.ray._locked(tmp_path, "ab" * 32), pytest.raises(hushed.LocalError) as caught:
        with hushed.ray._locked(tmp_path, "ab" * 32):
            pass
    assert caught.value.name == "busy"
    with hushed.ray._locked(tmp_path, "ab" * 32), hushed.ray._locked(tmp_path, "cd" * 32):
        pass
    assert list(tmp_path.iterdir()) == []
