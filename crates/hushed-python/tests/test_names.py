"""The names and habits of sentence-transformers, older and newer, and what is refused in place of texts."""

import numpy as np
import pytest

import hushed
from hushed._encoder import _compared
from hushed._settings import texts_of


class Column(list):
    """What a pandas Series has: keys, one dimension, values when it is iterated over."""

    ndim = 1

    def keys(self):
        return range(len(self))


class Frame:
    """What tables have: columns, whose names are what they give when they are iterated over."""

    columns = ["text", "label"]

    def keys(self):
        return self.columns

    def __iter__(self):
        return iter(self.columns)


class Data:
    """A table without that attribute (xarray)."""

    def keys(self):
        return ["text"]

    def __iter__(self):
        return iter(["text"])


def test_a_table_is_refused_and_a_column_is_not():
    for table in (Frame(), Data(), {"text": 1}, b"text", 7):
        with pytest.raises(TypeError, match="a str or a list of str"):
            texts_of(table)
    assert texts_of(Column(["a", "b"]), "p: ") == ["p: a", "p: b"]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"]})
    with pytest.raises(TypeError, match="DataFrame: give one column"):
        texts_of(frame)
    assert texts_of(frame["text"]) == ["a", "b"]
    assert texts_of(frame["text"].values) == ["a", "b"]


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_those_of_sentence_transformers(name):
    generator = np.random.default_rng(7)
    a, b = generator.normal(size=(4, 6)).astype("f4"), generator.normal(size=(3, 6)).astype("f4")

    def one(x, y):
        return {
            "cosine": x @ y / np.linalg.norm(x) / np.linalg.norm(y),
            "dot": x @ y,
            "euclidean": -np.sqrt(((x - y) ** 2).sum()),
            "manhattan": -np.abs(x - y).sum(),
        }[name]

    found = _compared(name, False, a, b)
    assert found.shape == (4, 3) and found.dtype == np.float32
    np.testing.assert_allclose(found, [[one(x, y) for y in b] for x in a], rtol=1e-5)
    np.testing.assert_allclose(_compared(name, True, a[:3], b), [one(x, y) for x, y in zip(a, b)], rtol=1e-5)
    with pytest.raises(hushed.UsageError):
        _compared(name, True, a, b)


def test_older_and_newer_names(encoder):
    assert encoder.similarity_fn_name == "cosine"
    width = encoder.get_embedding_dimension()
    assert width == encoder.get_sentence_embedding_dimension()
    assert encoder.get_max_seq_length() == encoder.max_seq_length
    newer, older = encoder.encode(inputs=["a"]), encoder.encode(sentences=["a"])
    assert encoder.similarity_pairwise(newer, older)[0] > 0.99999
    assert encoder.encode_query(inputs="a").shape == encoder.encode_document(sentences="a").shape == (width,)
    for wrong in ({}, {"inputs": "a", "sentences": "b"}):
        with pytest.raises(TypeError, match="inputs="):
            encoder.encode(**wrong)
    with encoder.truncate_embeddings(8):
        assert encoder.get_embedding_dimension() == 8
        assert encoder.encode(["a"]).shape == (1, 8)
        assert encoder.encode(["a"], truncate_dim=4).shape == (1, 4)
    assert encoder.encode("a").shape == (width,)


def test_tokens_are_those_that_a_pass_has(encoder):
    tokens = encoder.tokenize(["a private question", "a </s> [SEP] b"])
    first, second = tokens["input_ids"]
    around = [first[0], first[-1]]
    # Special tokens in a text are ordinary characters.
    assert [second[0], second[-1]] == around and not set(around) & set(second[1:-1])
    assert tokens["attention_mask"] == [[1] * len(first), [1] * len(second)]
    encoder.encode("a private question")
    assert encoder.last_cost.tokens == [len(first)]
    with pytest.raises(hushed.InputError):
        encoder.tokenize(["a", ""])
