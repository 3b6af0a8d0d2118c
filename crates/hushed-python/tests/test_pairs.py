"""Pairs of texts scored."""

import json

import numpy as np
import pytest

import hushed
from conftest import GOLDEN

CASES = [case for case in json.loads((GOLDEN / "cross-encoder" / "expected.json").read_text()) if len(case["ids"]) < 64]
PAIRS = [case["texts"] for case in CASES]
LOGITS = np.array([case["answer"][0] for case in CASES])


@pytest.fixture(scope="module")
def judge():
    """A server of the tiny cross-encoder."""
    with hushed.serve(GOLDEN / "cross-encoder", max_tokens=64) as server:
        yield server


@pytest.fixture(scope="module")
def model(judge):
    with hushed.CrossEncoder(judge.address, pin=judge.pin) as model:
        yield model


def test_scores_are_those_of_sentence_transformers(model):
    """The sigmoid of one number, as its CrossEncoder gives it by default."""
    assert (model.num_labels, model.labels, model.max_seq_length) == (1, ["LABEL_0"], 64)
    scores = model.predict(PAIRS, batch_size=4)
    assert scores.dtype == np.float32 and scores.shape == (len(PAIRS),)
    assert np.abs(scores - 1 / (1 + np.exp(-LOGITS))).max() < 5e-3
    one = model.predict(PAIRS[0])
    assert one.shape == () and abs(one - scores[0]) < 1e-2
    logits = model.predict(PAIRS[:2], activation_fn=lambda logits: logits)
    assert np.abs(logits - LOGITS[:2]).max() < 2e-2
    assert model.predict([]).shape == (0,)


def test_documents_are_ranked(model):
    query, documents = PAIRS[0][0], ["Hello world", "a", "The weather is lovely today."]
    ranked = model.rank(query, documents)
    assert sorted(result["corpus_id"] for result in ranked) == [0, 1, 2]
    scores = [result["score"] for result in ranked]
    assert scores == sorted(scores, reverse=True) and all(set(result) == {"corpus_id", "score"} for result in ranked)
    (first,) = model.rank(query, documents, top_k=1, return_documents=True)
    assert first["text"] == documents[first["corpus_id"]]


def test_what_is_no_pair_is_refused(model, server):
    for wrong, error in [(["a"], TypeError), ([("a",)], ValueError), ([("a", 1)], TypeError), ([("a", "b", "c")], ValueError)]:
        with pytest.raises(error):
            model.predict(wrong)
    with pytest.raises(hushed.InputError):
        model.predict([("a", "")])
    with pytest.raises(hushed.InputError):
        model.predict([("a", "b " * 200)])
    with pytest.raises(hushed.RefusedError):
        hushed.CrossEncoder(server.address, pin=server.pin)


def test_several_numbers_need_their_operator():
    with hushed.serve(GOLDEN / "roberta-classifier") as server:
        with pytest.raises(hushed.UsageError):
            hushed.CrossEncoder(server.address, pin=server.pin)
    with hushed.serve(GOLDEN / "roberta-classifier", answers="logits") as server:
        with hushed.CrossEncoder(server.address, pin=server.pin, truncate=True) as model:
            rows = model.predict([("Hello", "world"), ("a", "b")], apply_softmax=True)
            assert rows.shape == (2, 3) and np.allclose(rows.sum(axis=1), 1, atol=1e-5)
            with pytest.raises(ValueError):
                model.rank("a", ["b"])
    with pytest.raises(hushed.UsageError):
        hushed.serve(GOLDEN / "cross-encoder", answers="label")
