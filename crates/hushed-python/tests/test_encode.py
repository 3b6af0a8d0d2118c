"""Answers, shapes, order, prompts, lengths, cost."""

import numpy as np
import pytest

import hushed


def cosines(a, b):
    return hushed.SentenceEncoder.similarity_pairwise(a, b)


def test_answers_are_the_published_ones_in_the_order_of_the_texts(encoder, published):
    texts = [text for text, _ in published]
    assert len({len(text) for text in texts}) > 5, "texts of many lengths, so that the order matters"
    got = encoder.encode(texts, batch_size=4)
    assert got.shape == (len(texts), encoder.get_sentence_embedding_dimension()) and got.dtype == np.float32
    assert got.flags.writeable
    assert cosines(got, [answer for _, answer in published]).min() >= 0.9999


def test_one_str_is_a_vector_and_a_list_a_matrix(encoder, published):
    text, answer = published[0]
    width = encoder.get_sentence_embedding_dimension()
    one = encoder.encode(text)
    assert one.shape == (width,) and one.dtype == np.float32
    assert cosines(one, answer)[0] >= 0.9999
    assert encoder.encode([text]).shape == (1, width)
    assert encoder.encode(np.array([text, "b"])).shape == (2, width)
    assert encoder.encode(t for t in ("a", "b")).shape == (2, width)


def test_another_network_gives_the_same_answers_in_fewer_messages(server, published):
    text, answer = published[0]
    rounds = []
    for net in ("lan", "internet"):
        with hushed.SentenceEncoder(server.address, pin=server.pin, net=net) as encoder:
            assert cosines(encoder.encode(text), answer)[0] >= 0.9999
            rounds.append(encoder.last_cost.rounds)
    assert rounds[1] < rounds[0]


def test_an_empty_list_costs_nothing(encoder):
    none = encoder.encode([])
    assert none.shape == (0, encoder.get_sentence_embedding_dimension()) and none.dtype == np.float32
    assert encoder.last_cost.bytes_sent == 0 and encoder.last_cost.tokens == []


def test_the_cost_has_what_the_server_saw(server):
    with hushed.SentenceEncoder(server.address, pin=server.pin) as encoder:
        assert encoder.last_cost is None
        encoder.encode(["a b c d e f", "a"], batch_size=1)
        first = encoder.last_cost
        encoder.encode(["a b c d e f", "a"], batch_size=2)
        second = encoder.last_cost
    assert first.tokens == second.tokens and first.tokens[0] > first.tokens[1] >= 3
    assert (first.passes, first.sessions) == (2, 1)
    assert (second.passes, second.sessions) == (1, 0), "the session is kept, and both share a pass"
    assert 0 < second.rounds < first.rounds
    assert 0 < second.bytes_sent < first.bytes_sent and 0 < second.bytes_received
    assert first.setup_seconds > 0 and second.setup_seconds == 0 and second.seconds > 0


def test_a_bucket_hides_lengths(server):
    with hushed.SentenceEncoder(server.address, pin=server.pin, bucket=16) as padded:
        long, short = padded.encode(["a b c d e f", "a"])
        assert padded.last_cost.tokens == [16, 16] and padded.last_cost.passes == 1
    with hushed.SentenceEncoder(server.address, pin=server.pin) as plain:
        assert cosines([long, short], plain.encode(["a b c d e f", "a"])).min() >= 0.9999


def test_sessions_are_renewed_at_the_servers_limit_of_texts(folder, published):
    texts = [text for text, _ in published][:7]
    with hushed.serve(folder, max_texts=3) as server:
        with hushed.SentenceEncoder(server.address, pin=server.pin, truncate=True) as encoder:
            got = encoder.encode(texts, batch_size=2)
            assert encoder.last_cost.sessions == 3
    assert cosines(got, [answer for _, answer in published][:7]).min() >= 0.9999


def test_prompts_stand_before_texts(server):
    prompts = {"query": "query: ", "passage": "passage: "}
    with hushed.SentenceEncoder(server.address, pin=server.pin, prompts=prompts) as encoder:
        assert encoder.prompts == prompts
        plain = encoder.encode(["query: a", "passage: a", "own a", "a"])
        asked = [
            encoder.encode_query("a"),
            encoder.encode_document("a"),
            encoder.encode("a", prompt="own "),
            encoder.encode("a"),
        ]
        assert cosines(plain, asked).min() >= 0.9999
        named = encoder.encode("a", prompt_name="query")
        assert cosines(named, plain[0])[0] >= 0.9999 > cosines(named, plain[1])[0]
        with pytest.raises(hushed.UsageError, match="prompt_name='other'.*passage, query"):
            encoder.encode("a", prompt_name="other")


def test_vectors_can_be_cut_and_normalised(encoder, published):
    text, answer = published[1]
    cut = encoder.encode([text], truncate_dim=8, normalize_embeddings=True)
    assert cut.shape == (1, 8) and abs(np.linalg.norm(cut) - 1) < 1e-6
    assert cosines(cut, answer[:8])[0] >= 0.9999


def test_similarity_is_the_cosine():
    similarity = hushed.SentenceEncoder.similarity([[2.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 3.0]])
    assert similarity.shape == (3, 2) and similarity.dtype == np.float32
    np.testing.assert_allclose(similarity, [[1, 0], [0.5**0.5, 0.5**0.5], [0, 0]], atol=1e-6)
    with pytest.raises(hushed.UsageError):
        hushed.SentenceEncoder.similarity_pairwise([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])


def test_progress_is_shown_on_standard_error(encoder, capsys):
    encoder.encode(["a", "b"], show_progress_bar=True)
    assert "2" in capsys.readouterr().err


def test_settings_come_from_the_environment_too(server, monkeypatch, tmp_path):
    monkeypatch.setenv("HUSHED_SERVER", server.address)
    monkeypatch.setenv("HUSHED_PIN", server.pin)
    monkeypatch.setenv("HUSHED_BUCKET", "8")
    monkeypatch.setenv("HUSHED_CACHE_DIR", str(tmp_path / "cache"))
    with hushed.SentenceEncoder() as encoder:
        encoder.encode("a")
        assert encoder.last_cost.tokens == [8]
        assert encoder.bundle == server.bundle
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{server.bundle}.bundle"]
        assert encoder.max_seq_length > 8
