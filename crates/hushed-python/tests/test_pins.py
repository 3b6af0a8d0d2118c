"""The server chooses the tokenizer and sees the number of tokens, so a client pins the published one, or is warned."""

import hashlib
import json
import shutil
import warnings

import pytest

import hushed
from hushed import _settings


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not been warned yet."""
    monkeypatch.setattr(_settings, "_WARNED", set())


def opened(kind, server, **pins):
    """A client, and what it was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = kind(server.address, pin=server.pin, **pins)
    return client, [str(w.message) for w in caught if issubclass(w.category, hushed.UnpinnedWarning)]


def test_a_process_is_warned_once(server, fresh):
    for times in (1, 0):
        encoder, warned = opened(hushed.SentenceEncoder, server)
        encoder.close()
        assert len(warned) == times
        assert all("tokenizer_sha256=" in message for message in warned)


def test_published_hashes_are_accepted_without_a_warning(server, folder, fresh, monkeypatch):
    tokenizer = sha256(folder / "tokenizer.json")
    for pins in ({"tokenizer_sha256": tokenizer}, {"bundle_sha256": server.bundle}):
        encoder, warned = opened(hushed.SentenceEncoder, server, **pins)
        assert not warned and encoder.encode("a").shape == (encoder.get_sentence_embedding_dimension(),)
        encoder.close()
    monkeypatch.setenv("HUSHED_TOKENIZER_SHA256", tokenizer)
    encoder, warned = opened(hushed.SentenceEncoder, server)
    encoder.close()
    assert not warned


def test_other_files_are_refused(server, folder, tmp_path, fresh):
    for pins, name in [
        ({"tokenizer_sha256": "0" * 64}, "other-tokenizer"),
        ({"template_sha256": "0" * 64}, "other-template"),
        ({"bundle_sha256": "0" * 64}, "other-bundle"),
    ]:
        with pytest.raises(hushed.MismatchError) as caught:
            opened(hushed.SentenceEncoder, server, **pins)
        assert caught.value.name == name
    for pins in ({"tokenizer_sha256": "9f86"}, {"bundle": "a", "bundle_sha256": "0" * 64}):
        with pytest.raises(hushed.UsageError):
            opened(hushed.SentenceEncoder, server, **pins)
    # The same model with white space behind its tokenizer: other bytes, so another hash.
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    with (other / "tokenizer.json").open("a") as file:
        file.write(" ")
    with hushed.serve(other) as renamed, pytest.raises(hushed.MismatchError):
        opened(hushed.SentenceEncoder, renamed, tokenizer_sha256=sha256(folder / "tokenizer.json"))


def test_conversations_need_the_template_too(talker, chat_folder, fresh):
    # As docs/who-sees-what.md says, from the published file.
    published = json.loads((chat_folder / "tokenizer_config.json").read_text())
    public = {"chat_template": published["chat_template"], "eos_token": published["eos_token"]}
    text = json.dumps(public, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    template = hashlib.sha256(text.encode()).hexdigest()
    tokenizer = sha256(chat_folder / "tokenizer.json")
    messages = [{"role": "user", "content": "a"}]

    def chat(**pins):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with hushed.Generator(talker.address, pin=talker.pin, tokenizer_sha256=tokenizer, **pins) as generator:
                list(generator.chat(messages, max_tokens=1))
        return [w for w in caught if issubclass(w.category, hushed.UnpinnedWarning)]

    assert not chat(template_sha256=template)
    assert len(chat()) == 1
