"""What the tests share: a tiny model, its published answers, a server."""

import faulthandler
import json
import os
import pathlib
import shutil

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


#: As simple as a chat template can be; the special token is the model's own.
TEMPLATE = (
    "{% for message in messages %}{% if not message.content %}{{ raise_exception('a message is empty') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory):
    """The tiny GPT-2 with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "gpt2"
    shutil.copytree(GOLDEN / "gpt2", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|endoftext|>"}))
    return folder


@pytest.fixture(scope="session")
def talker(chat_folder):
    """A server of it."""
    with hushed.serve(chat_folder) as server:
        yield server
