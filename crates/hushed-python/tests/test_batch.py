"""Batches under encryption, as far as a released wheel goes in a test: keys of secure parameters take gigabytes, and a
wheel has no others. What is sent, computed and decrypted is tested in Rust, with the same client (hushed-serve,
tests/fhe)."""

import contextlib
import json
import pickle
import subprocess
import sys
import warnings

import pytest

import hushed
from conftest import GOLDEN

PIN = "0" * 64


def raised(kind, name, call, *arguments, **named):
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    assert (type(caught.value), caught.value.name) == (kind, name), caught.value
    return str(caught.value)


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "hushed", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def keys_of(record, folder):
    """A key folder with this record only."""
    folder.mkdir()
    (folder / "key.json").write_text(json.dumps(record))
    return folder


RECORD = {
    "version": 1,
    "id": "ab" * 32,
    "plan": "cd" * 32,
    "parameters": "some",
    "created": 1,
    "expires": 2**40,
    "bytes": 9,
    "decryptions": 1,
    "owner": None,
}


def test_arguments_are_checked_before_anything_is_connected(tmp_path, monkeypatch):
    def make(**named):
        return hushed.BatchEncoder("127.0.0.1:1", pin=PIN, **named)

    assert "keys=" in raised(hushed.UsageError, "usage", make)
    raised(hushed.UsageError, "usage", make, keys=tmp_path, lengths="none")
    for wrong in [dict(days=0), dict(days=3651), dict(max_keys=0), dict(max_key_bytes=0)]:
        raised(hushed.UsageError, "limit", make, keys=tmp_path, **wrong)
    with pytest.raises(TypeError, match="days"):
        make(keys=tmp_path, days=1.5)
    raised(hushed.UsageError, "usage", hushed.BatchEncoder, keys=tmp_path)
    monkeypatch.setenv("HUSHED_KEYS", str(tmp_path / "env"))
    enc = make()
    assert "127.0.0.1:1" in repr(enc)
    # It holds no secret and no connection.
    assert repr(pickle.loads(pickle.dumps(enc))) == repr(enc)
    for texts in [7, b"a", ["a", 1]]:
        with pytest.raises(TypeError):
            enc.submit(texts)
    with pytest.raises(TypeError, match="job"):
        enc.status(7)
    raised(hushed.InputError, "text-refused", enc.submit, "\ud800")
    assert not (tmp_path / "env").exists()


def test_jobs_that_are_not_in_the_key_folder(tmp_path):
    enc = hushed.BatchEncoder("127.0.0.1:1", pin=PIN, keys=tmp_path)
    for call in [enc.status, enc.result, enc.forget]:
        raised(hushed.UsageError, "no-such-job", call, "ab" * 32)


def test_retired_keys_connect_to_nobody(tmp_path):
    wrong = [{"request": "01" * 32, "reply": "02" * 32}]
    keys = keys_of({**RECORD, "not_right": wrong}, tmp_path / "keys")
    enc = hushed.BatchEncoder("127.0.0.1:1", pin=PIN, keys=keys, make_keys=True)
    message = raised(hushed.UsageError, "keys-retired", enc.submit, ["a private text"])
    assert "private text" not in message
    (keys / "key.json").write_text("{")
    raised(hushed.LocalError, "record-damaged", enc.submit, ["a"])


def test_servers_that_are_not_there_or_speak_the_other_protocol(tmp_path, server):
    enc = hushed.BatchEncoder("127.0.0.1:1", pin=PIN, keys=tmp_path / "keys")
    with pytest.raises(hushed.NetworkError):
        enc.submit("a")
    other = hushed.BatchEncoder(server.address, pin=server.pin, keys=tmp_path / "keys")
    with pytest.raises(hushed.HushedError) as caught:
        other.submit("a")
    assert caught.value.exit_code in (5, 6, 7)
    assert not (tmp_path / "keys").exists()


@contextlib.contextmanager
def serving(folder, calibration, manifest, public):
    """A server by fhe: its address and pin."""
    work = manifest.with_suffix(".served")
    serve = [sys.executable, "-m", "hushed", "serve", folder, "--protocol", "fhe", "--manifest", manifest]
    serve += ["--public", public, "--calibration", calibration, "--store", work / "store", "--listen", "127.0.0.1:0"]
    serve += ["--cert-dir", work / "certificate", "--secret", work / "reply.secret", "--json"]
    with subprocess.Popen(list(map(str, serve)), stdout=subprocess.PIPE, text=True) as process:
        try:
            told = json.loads(process.stdout.readline())
            yield told["address"], told["certificate_sha256"]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def offered(folder, tmp_path_factory):
    """A server of the tiny model by fhe, with secure parameters: address, pin, manifest."""
    work = tmp_path_factory.mktemp("fhe")
    sample, calibration = work / "sample.txt", work / "calibration.json"
    manifest, public = work / "manifest.json", work / "model.public"
    words = ["the", "private", "world", "is", "a", "hello", "key", "sea"]
    sample.write_text("".join(" ".join(words[i : i + 1 + i % 4]) + "\n" for i in range(8)))
    command("calibrate", folder, "--protocol", "fhe", "--input", sample, "--rows", 16, "--cosine", 0.9, "--output", calibration)
    command(
        *("plan", folder, "--protocol", "fhe", "--rows", 16, "--calibration", calibration, "--manifest", manifest),
        *("--public-model", public, "--public-embedding", "--canary", "hello world"),
    )
    with serving(folder, calibration, manifest, public) as (address, pin):
        yield address, pin, manifest


def test_keys_are_made_only_on_request_and_within_limits(offered, tmp_path):
    address, pin, manifest = offered
    keys = tmp_path / "keys"
    enc = hushed.BatchEncoder(address, pin=pin, keys=keys)
    raised(hushed.UsageError, "no-keys", enc.submit, ["a private text"])
    # The manifest is kept, and no other is accepted from then on.
    assert (keys / "manifest.json").read_bytes() == manifest.read_bytes() and (keys / "model.public").exists()
    few = hushed.BatchEncoder(address, pin=pin, keys=keys, make_keys=True, max_keys=1)
    raised(hushed.MismatchError, "too-many-keys", few.submit, ["a private text"])
    small = hushed.BatchEncoder(address, pin=pin, keys=keys, make_keys=True, max_key_bytes=1 << 20)
    raised(hushed.MismatchError, "too-many-keys", small.submit, ["a private text"])
    assert not (keys / "secret.key").exists()
    # Keys of another manifest send nothing.
    other = keys_of(RECORD, tmp_path / "other")
    raised(hushed.MismatchError, "other-plan", hushed.BatchEncoder(address, pin=pin, keys=other).submit, ["a"])
    # Keys that have expired.
    expired = keys_of({**RECORD, "expires": 2}, tmp_path / "expired")
    raised(hushed.RefusedError, "keys-expired", hushed.BatchEncoder(address, pin=pin, keys=expired).submit, ["a"])


def test_without_a_canary_answers_are_said_to_be_unchecked(tmp_path, monkeypatch):
    native = hushed._batch._native
    monkeypatch.setattr(native, "batch_status", lambda *_: ("done", 0, 0.0, 0, 0, None))
    enc = hushed.BatchEncoder("127.0.0.1:1", pin=PIN, keys=tmp_path)
    dec = hushed.BatchDecoder("127.0.0.1:1", pin=PIN, keys=tmp_path)
    calls = [
        ("batch_result", (bytearray(8), 1), lambda: enc.result("ab").tolist(), [[0.0, 0.0]]),
        ("batch_next", [], lambda: dec.next("ab"), []),
        ("batch_score", [], lambda: dec.score("ab", ["a"]), []),
        ("batch_choose", [], lambda: dec.choose("ab", [ITEM]), []),
    ]
    for name, answer, call, expected in calls:
        monkeypatch.setattr(native, name, lambda *_, answer=answer: (answer, True))
        with pytest.warns(UserWarning, match="unchecked") as caught:
            assert call() == expected
        assert len(caught) == 1 and caught[0].filename == __file__
        monkeypatch.setattr(native, name, lambda *_, answer=answer: (answer, False))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call() == expected


ITEM = {"prompt": "the private", "endings": [" world", " key"], "label": 1}


def test_what_is_asked_of_a_decoder_is_checked_first(tmp_path, offered):
    dec = hushed.BatchDecoder("127.0.0.1:1", pin=PIN, keys=tmp_path)
    for call in [dec.next, lambda job: dec.score(job, ["a"]), lambda job: dec.choose(job, [ITEM])]:
        raised(hushed.UsageError, "no-such-job", call, "ab" * 32)
    raised(hushed.UsageError, "limit", dec.next, "ab" * 32, top=0)
    for items in ["a", ITEM, ["a"]]:
        with pytest.raises(TypeError):
            dec.submit_items(items)
    for wrong in [{"prompt": "a"}, {**ITEM, "endings": [" b"]}, {**ITEM, "label": 2}, {**ITEM, "more": 1}]:
        message = raised(hushed.InputError, "choices", dec.submit_items, [ITEM, wrong])
        assert "line 2" in message
    # An encoder is no decoder.
    address, pin, _ = offered
    dec = hushed.BatchDecoder(address, pin=pin, keys=tmp_path / "keys", make_keys=True)
    for call in [lambda: dec.submit("a"), lambda: dec.submit("a", likelihoods=True), lambda: dec.submit_items([ITEM])]:
        raised(hushed.MismatchError, "other-answer", call)


def test_a_decoder_answers_what_its_manifest_says(tmp_path):
    folder, sample, calibration = GOLDEN / "bitnet-sigmoid", tmp_path / "sample.txt", tmp_path / "calibration.json"
    manifest, public = tmp_path / "manifest.json", tmp_path / "model.public"
    sample.write_text("the sea is red\na b c d\nhello\nthe world is a sea\nb b b a c\nred sea\nthe the\nd a c\n")
    command("calibrate", folder, "--protocol", "fhe", "--input", sample, "--rows", 16, "--cosine", 0.9, "--output", calibration)
    command(
        *("plan", folder, "--protocol", "fhe", "--rows", 16, "--calibration", calibration, "--answer", "last"),
        *("--manifest", manifest, "--public-model", public, "--public-embedding"),
    )
    with serving(folder, calibration, manifest, public) as (address, pin):
        dec = hushed.BatchDecoder(address, pin=pin, keys=tmp_path / "keys", truncate=True)
        # Keys would be next: what is asked for has been allowed.
        raised(hushed.UsageError, "no-keys", dec.submit, ["the private world"])
        raised(hushed.MismatchError, "other-answer", dec.submit, ["the private world"], likelihoods=True)
        raised(hushed.MismatchError, "other-answer", dec.submit_items, [ITEM])
