"""What the tests share: a tiny model, its published answers, a server."""

import faulthandler
import json
import os
import pathlib

import pytest

import hushed

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "hushed-model" / "tests" / "golden" / "tiny"

# A test that hangs would hang `make test`.
faulthandler.dump_traceback_later(600, exit=True)


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch):
    """Variables that stand for arguments."""
    for name in [n for n in os.environ if n.startswith("HUSHED_") and not n.startswith("HUSHED_DENY_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def folder():
    """A model folder of two layers with random weights."""
    return GOLDEN / "roberta"


@pytest.fixture(scope="session")
def published(folder):
    """Texts, and what the reference libraries answer, in float64 (scripts/tiny_folders.py)."""
    return [(case["text"], case["answer"]) for case in json.loads((folder / "expected.json").read_text())]


@pytest.fixture(scope="session")
def server(folder):
    with hushed.serve(folder) as server:
        yield server


@pytest.fixture(scope="session")
def encoder(server):
    with hushed.SentenceEncoder(server.address, pin=server.pin, truncate=True) as encoder:
        yield encoder
