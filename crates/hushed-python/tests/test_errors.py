"""Errors by type, name and exit code."""

import pickle

import pytest

import hushed


def raised(kind, name, call):
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, hushed.HushedError)
    assert (type(error), error.name, error.exit_code) == (kind, name, kind.exit_code)
    return str(error)


def test_classes_are_python_s_own_too():
    for kind, builtin, code in [
        (hushed.UsageError, ValueError, 2),
        (hushed.InputError, ValueError, 3),
        (hushed.FolderError, ValueError, 4),
        (hushed.NetworkError, ConnectionError, 5),
        (hushed.MismatchError, Exception, 6),
        (hushed.RefusedError, Exception, 7),
        (hushed.LocalError, OSError, 8),
        (hushed.DefectError, RuntimeError, 70),
    ]:
        assert issubclass(kind, builtin) and kind.exit_code == code
        copy = pickle.loads(pickle.dumps(kind("why", "some-name")))
        assert (type(copy), str(copy), copy.name) == (kind, "why", "some-name")


@pytest.mark.parametrize(
    "argument",
    [
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"precision": "int8"},
        {"output_value": "token_embeddings"},
        {"output_value": None},
        {"device": "cuda:0"},
        {"pool": {}},
        {"chunk_size": 8},
    ],
)
def test_what_is_not_supported_is_named(encoder, argument):
    [name] = argument
    assert name in raised(hushed.UsageError, "usage", lambda: encoder.encode("a", **argument))


def test_a_network_is_a_name_or_figures(server):
    connect = lambda: hushed.SentenceEncoder(server.address, pin=server.pin, net="fast")
    assert "40ms/50mbit" in raised(hushed.UsageError, "usage", connect)


def test_sizes_are_checked(encoder):
    assert "batch_size" in raised(hushed.UsageError, "limit", lambda: encoder.encode("a", batch_size=0))
    assert "truncate_dim" in raised(hushed.UsageError, "limit", lambda: encoder.encode("a", truncate_dim=0))
    with pytest.raises(TypeError, match="batch_size"):
        encoder.encode("a", batch_size=1.5)


def test_what_is_no_text_is_refused_by_its_place(encoder):
    for texts, words in [(["a", 1], "text 1 .*int"), ([None], "text 0 .*NoneType"), ({"a": 1}, "dict"), (b"a", "bytes"), (7, "int")]:
        with pytest.raises(TypeError, match=words):
            encoder.encode(texts)


def test_a_refused_text_costs_nothing_and_is_not_repeated(encoder):
    encoder.encode("a")
    before = encoder.last_cost
    for text in ["", "secret words\ud800"]:
        message = raised(hushed.InputError, "text-refused", lambda: encoder.encode(["fine", text]))
        assert "text 1" in message and "secret" not in message
    assert encoder.last_cost is before
    encoder.encode("a")
    assert encoder.last_cost.sessions == 0, "the session is kept"


def test_limits_of_the_server_are_its_refusals(folder, monkeypatch):
    # Otherwise the second would wait, and the first, idle, would end for it.
    monkeypatch.setenv("HUSHED_RETRY", "0")
    with hushed.serve(folder, max_tokens=8, max_sessions=1) as server:
        with hushed.SentenceEncoder(server.address, pin=server.pin) as encoder:
            assert encoder.max_seq_length == 8
            long = "a b c d e f g h i j k"
            assert "text 1" in raised(hushed.RefusedError, "too-long", lambda: encoder.encode(["a", long]))
            second = lambda: hushed.SentenceEncoder(server.address, pin=server.pin)
            raised(hushed.RefusedError, "too-many-sessions", second)


def test_tokens_are_asked_for(folder, tmp_path):
    files = {name: tmp_path / name for name in ["tokens", "right", "wrong"]}
    files["tokens"].write_text("a-token-of-24-characters\n")
    files["right"].write_text("a-token-of-24-characters\n")
    files["wrong"].write_text("another-of-24-characters\n")
    for file in files.values():
        file.chmod(0o600)
    with hushed.serve(folder, tokens=files["tokens"]) as server:
        connect = lambda **given: hushed.SentenceEncoder(server.address, pin=server.pin, **given)
        raised(hushed.RefusedError, "no-token", connect)
        raised(hushed.RefusedError, "bad-token", lambda: connect(token_file=files["wrong"]))
        raised(hushed.LocalError, "file", lambda: connect(token_file=tmp_path / "none"))
        files["wrong"].chmod(0o644)
        raised(hushed.LocalError, "not-private", lambda: connect(token_file=files["wrong"]))
        with connect(token_file=files["right"]) as encoder:
            assert encoder.encode("a").shape == (encoder.get_sentence_embedding_dimension(),)


def test_the_server_must_be_the_pinned_one(server, folder, tmp_path):
    wrong = "0" * 64
    raised(hushed.NetworkError, "wrong-pin", lambda: hushed.SentenceEncoder(server.address, pin=wrong))
    raised(hushed.UsageError, "certificate", lambda: hushed.SentenceEncoder(server.address, pin="short"))
    raised(hushed.LocalError, "certificate", lambda: hushed.SentenceEncoder(server.address, ca=tmp_path / "none"))
    raised(hushed.UsageError, "address", lambda: hushed.SentenceEncoder("nowhere", pin=server.pin))
    raised(hushed.NetworkError, "unreachable", lambda: hushed.SentenceEncoder("127.0.0.1:1", pin=server.pin))


def test_arguments_that_exclude_each_other(server, monkeypatch):
    assert "pin=" in raised(hushed.UsageError, "usage", lambda: hushed.SentenceEncoder(server.address))
    both = lambda: hushed.SentenceEncoder(server.address, pin=server.pin, ca="ca.pem")
    assert "exactly one" in raised(hushed.UsageError, "usage", both)
    assert "HUSHED_SERVER" in raised(hushed.UsageError, "usage", lambda: hushed.SentenceEncoder(pin=server.pin))
    assert "key=" in raised(hushed.UsageError, "usage", lambda: hushed.SentenceEncoder(server.address, pin=server.pin, cert="c"))
    monkeypatch.setenv("HUSHED_BUCKET", "many")
    raised(hushed.UsageError, "usage", lambda: hushed.SentenceEncoder(server.address, pin=server.pin))


def test_another_model_is_not_accepted(server, folder, tmp_path):
    other = tmp_path / "other.bundle"
    code = hushed._native.command(["hushed", "bundle", str(folder.parent / "xlm-roberta"), str(other), "--quiet"])
    assert code == 0
    connect = lambda: hushed.SentenceEncoder(server.address, pin=server.pin, bundle=other)
    raised(hushed.MismatchError, "other-bundle", connect)


def test_a_folder_that_is_no_model(tmp_path):
    raised(hushed.FolderError, "model-folder", lambda: hushed.serve(tmp_path))
    raised(hushed.FolderError, "model-folder", lambda: hushed.plan(tmp_path, tokens=[8]))


def test_a_classifier_is_refused_at_once(folder):
    with hushed.serve(folder.parent / "roberta-classifier") as server:
        connect = lambda: hushed.SentenceEncoder(server.address, pin=server.pin)
        assert "classifies" in raised(hushed.RefusedError, "other-task", connect)
