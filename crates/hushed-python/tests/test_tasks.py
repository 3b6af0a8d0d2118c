"""Texts continued and classified."""

import gc
import json
import os
import pathlib
import pickle
import time

import pytest

import hushed
from conftest import GOLDEN


@pytest.fixture(scope="module")
def writer():
    """A server of the tiny GPT-2."""
    with hushed.serve(GOLDEN / "gpt2") as server:
        yield server


@pytest.fixture(scope="module")
def judge():
    """A server of the tiny classifier."""
    with hushed.serve(GOLDEN / "roberta-classifier") as server:
        yield server


@pytest.fixture(scope="module")
def generator(writer):
    with hushed.Generator(writer.address, pin=writer.pin) as generator:
        yield generator


def test_a_text_comes_in_pieces_and_says_why_it_ends(generator):
    answer = generator.generate("Hello world", max_tokens=5)
    assert answer.finish is None
    pieces = list(answer)
    assert 1 <= len(pieces) <= 5 and answer.finish in ("length", "end")
    assert list(answer) == [], "it stays at its end"
    assert list(generator.generate("Hello world", max_tokens=5)) == pieces, "the likeliest tokens, again"
    padded = generator.generate("Hello world", max_tokens=5, pad_output=True)
    assert list(padded) == pieces


def test_the_same_seed_draws_the_same_text(generator):
    def draw(seed):
        return "".join(generator.generate("Hello", max_tokens=6, temperature=1.5, seed=seed))

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(3)}) > 1


def test_biases_and_penalties_move_the_logits(generator):
    def text(**given):
        return "".join(generator.generate("Hello world", max_tokens=6, **given))

    plain = text()
    assert text(frequency_penalty=0, logit_bias={}) == plain
    assert text(presence_penalty=2, frequency_penalty=2) != plain
    only = generator.generate("Hello world", max_tokens=3, logit_bias={5: 100})
    list(only)
    assert only.top == [5]


def test_a_text_ends_before_a_stop_string(generator):
    whole = "".join(generator.generate("Hello world", max_tokens=5))
    assert whole
    stopped = generator.generate("Hello world", max_tokens=5, stop=whole[1])
    assert "".join(stopped) == whole[: whole.index(whole[1])] and stopped.finish == "stop"


def test_products_made_ahead_give_the_same_text(writer):
    with hushed.Generator(writer.address, pin=writer.pin) as generator:
        expected = "".join(generator.generate("Hello world", max_tokens=6))
    with hushed.serve(GOLDEN / "gpt2", max_ahead=2) as server:
        with hushed.Generator(server.address, pin=server.pin, ahead=2) as generator:
            assert "".join(generator.generate("Hello world", max_tokens=6)) == expected
    # At a server that makes none.
    with hushed.Generator(writer.address, pin=writer.pin, ahead=2) as generator:
        with pytest.raises(hushed.HushedError) as refused:
            list(generator.generate("Hello world", max_tokens=6))
    assert refused.value.name == "too-far-ahead"


def test_drafts_give_the_same_text_in_fewer_passes(writer, monkeypatch):
    def written(generator, **given):
        answer = generator.generate("Hello world", max_tokens=24, **given)
        assert answer.drafted == (0, 0, 0)
        return "".join(answer), answer.drafted

    with hushed.Generator(writer.address, pin=writer.pin) as generator:
        expected, drafted = written(generator)
    assert drafted.drafts == 0
    tokens = drafted.passes
    with hushed.serve(GOLDEN / "gpt2", max_drafts=3, max_ahead=4) as server:
        for ahead in (0, 4):
            with hushed.Generator(server.address, pin=server.pin, draft=3, ahead=ahead) as generator:
                text, drafted = written(generator)
            assert text == expected
            assert 0 < drafted.right <= drafted.drafts and drafted.passes == tokens - drafted.right
        monkeypatch.setenv("HUSHED_DRAFT", "2")
        with hushed.Generator(server.address, pin=server.pin) as generator:
            text, drafted = written(generator)
            assert text == expected and drafted.right > 0
            # How many are right tells where the text ends.
            with pytest.raises(hushed.UsageError) as refused:
                written(generator, pad_output=True)
            assert refused.value.name == "limit"
        monkeypatch.delenv("HUSHED_DRAFT")
        with pytest.raises(hushed.UsageError):
            hushed.Generator(server.address, pin=server.pin, draft=-1)
    # At a server that takes none.
    with hushed.Generator(writer.address, pin=writer.pin, draft=2) as generator:
        with pytest.raises(hushed.RefusedError) as refused:
            written(generator)
    assert refused.value.name == "too-many-drafts"
    with pytest.raises(hushed.UsageError):
        hushed.serve(GOLDEN / "roberta", max_drafts=1)


def test_a_text_goes_on_behind_a_public_prefix(tmp_path):
    prefix, other = tmp_path / "prefix.txt", tmp_path / "other.txt"
    prefix.write_text("Hello world, hello again: ")
    other.write_text("Something else")
    with hushed.serve(GOLDEN / "gpt2", public_prefix=prefix) as server:
        def text(expected):
            with hushed.Generator(server.address, pin=server.pin, public_prefix=expected) as generator:
                return "".join(generator.generate("Hello", max_tokens=4))

        assert text(None) == text(str(prefix))
        with pytest.raises(hushed.HushedError) as refused:
            text(other)
        assert refused.value.name == "other-prefix"
        with pytest.raises(hushed.HushedError) as missing:
            text(tmp_path / "none.txt")
        assert missing.value.name == "file"
    alone, behind = (hushed.plan(GOLDEN / "gpt2", 4, public_prefix=file) for file in (None, prefix))
    assert behind["bytes_up"] > alone["bytes_up"] and "public prefix" in str(behind["exposures"])
    with pytest.raises(hushed.HushedError):
        hushed.plan(GOLDEN / "gpt2", 4, public_prefix=tmp_path / "none.txt")
    with pytest.raises(hushed.HushedError):
        hushed.serve(GOLDEN / "roberta", public_prefix=prefix)


def test_a_conversation_becomes_the_text_that_its_template_makes(talker):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    with hushed.Generator(talker.address, pin=talker.pin) as generator:
        answer = generator.chat(messages, max_tokens=5)
        pieces = list(answer)
        assert 1 <= len(pieces) <= 5 and answer.finish in ("length", "end")
        other = generator.chat([{"role": "user", "content": "Other words"}], max_tokens=5)
        assert list(other) != pieces
        # No special token is in this text, so that it can be continued as it is.
        plain = generator.generate("system: Be brief.\nuser: Hello\nassistant:", max_tokens=5)
        assert list(plain) == pieces
        for content in ["a<|endoftext|>b", ""]:
            with pytest.raises(hushed.InputError):
                list(generator.chat([{"role": "user", "content": content}], max_tokens=2))
        with pytest.raises(hushed.InputError, match="0 messages"):
            list(generator.chat([], max_tokens=2))
        with pytest.raises(hushed.UsageError, match="roles"):
            generator.chat([{"role": "tool", "content": "a"}])
        for wrong in ["text", [{"role": "user"}], [("user", "a")], [{"role": "user", "content": b"a"}]]:
            with pytest.raises(TypeError):
                generator.chat(wrong)


def test_a_model_without_a_chat_template_says_so(generator):
    with pytest.raises(hushed.RefusedError) as caught:
        list(generator.chat([{"role": "user", "content": "Hello"}], max_tokens=2))
    assert caught.value.name == "no-chat-template"


def test_another_text_ends_the_one_before_and_the_session_is_kept(generator):
    first = generator.generate("Hello world", max_tokens=40)
    next(first)
    second = generator.generate("Hello", max_tokens=2)
    assert len(list(second)) <= 2
    with pytest.raises(hushed.UsageError, match="another one began"):
        next(first)
    third = generator.generate("Hello world", max_tokens=40)
    next(third)
    third.close()
    assert list(generator.generate("Hello", max_tokens=2)) is not None


def test_a_text_keeps_its_generator_and_ends_when_it_is_dropped(writer):
    def pieces():
        return hushed.Generator(writer.address, pin=writer.pin).generate("Hello world", max_tokens=5)

    answer = pieces()
    gc.collect()
    assert 1 <= len(list(answer)) <= 5
    with hushed.Generator(writer.address, pin=writer.pin) as generator:
        before = threads().count("hushed call")
        dropped = generator.generate("Hello world", max_tokens=40)
        next(dropped)
        del dropped
        # Its thread ends by itself; with nobody to take its pieces it would hold the session until the next text.
        until = time.monotonic() + 60
        while threads().count("hushed call") > before:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_what_generators_refuse(generator, server, writer):
    with pytest.raises(hushed.InputError):
        list(generator.generate("", max_tokens=2))
    with pytest.raises(hushed.RefusedError) as caught:
        list(generator.generate("Hello", max_tokens=10**6))
    assert caught.value.name in ("too-long", "too-many-texts")
    for wrong in [dict(max_tokens=0), dict(temperature=3.0), dict(seed=-1), dict(logit_bias={5: 101})]:
        with pytest.raises(hushed.UsageError):
            list(generator.generate("Hello", **wrong))
    for wrong in [dict(prompt=b"bytes"), dict(prompt="a", stop=[1]), dict(prompt="a", max_tokens=1.5)]:
        with pytest.raises(TypeError):
            generator.generate(**wrong)
    with pytest.raises(hushed.InputError):
        generator.generate("\ud800")
    with pytest.raises(hushed.RefusedError) as caught:
        hushed.Generator(server.address, pin=server.pin)
    assert caught.value.name == "other-task"
    for thing in [generator, generator.generate("a", max_tokens=1)]:
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(thing)
    # After all that it works.
    assert list(generator.generate("Hello", max_tokens=1))


def test_a_generator_refuses_in_a_forked_process(generator):
    list(generator.generate("Hello", max_tokens=1))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            list(generator.generate("Hello", max_tokens=1))
            name = "no error"
        except hushed.HushedError as error:
            name = error.name
        except BaseException as error:
            name = type(error).__name__
        os.write(write, name.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "forked"
    assert list(generator.generate("Hello", max_tokens=1)), "the parent's session goes on"


def test_classes_are_the_published_ones(judge):
    cases = json.loads((GOLDEN / "roberta-classifier" / "expected.json").read_text())
    with hushed.Classifier(judge.address, pin=judge.pin, truncate=True) as classifier:
        assert classifier.labels == ["no", "perhaps", "yes"]
        sure = [case for case in cases if margin(case["answer"]) > 0.05]
        assert len(sure) >= 3
        expected = [classifier.labels[max(range(3), key=case["answer"].__getitem__)] for case in sure]
        assert classifier.classify([case["text"] for case in sure], batch_size=3) == expected
        assert classifier.classify(sure[0]["text"]) == expected[0]
        assert classifier.classify([]) == []


def test_operators_open_more_than_the_first_place():
    cases = json.loads((GOLDEN / "roberta-classifier" / "expected.json").read_text())
    case = next(case for case in cases if margin(case["answer"]) > 0.05)
    labels, text, logits = ["no", "perhaps", "yes"], case["text"], case["answer"]
    ranked = [labels[i] for i in sorted(range(3), key=lambda i: -logits[i])]

    def answers(judge, wanted):
        with hushed.Classifier(judge.address, pin=judge.pin, truncate=True, answers=wanted) as classifier:
            return classifier.classify(text)

    with hushed.serve(GOLDEN / "roberta-classifier", answers="logits") as judge:
        assert answers(judge, "logits") == pytest.approx(logits, abs=0.02)
        assert answers(judge, "top:2")[0] == ranked[0] == answers(judge, "label")
    with hushed.serve(GOLDEN / "roberta-classifier", answers="top:2") as judge:
        top = answers(judge, "top:2")
        assert len(top) == 2 and top[0] == ranked[0] and set(top) < set(labels)
        assert answers(judge, "top:1") == [ranked[0]] and answers(judge, "label") == ranked[0]
        for more in ["top:3", "logits"]:
            with pytest.raises(hushed.UsageError, match="operator"):
                answers(judge, more)
    for wrong in ["top:0", "all", ""]:
        for call in [hushed.serve, lambda folder, answers: hushed.plan(folder, 4, answers=answers)]:
            with pytest.raises(hushed.UsageError):
                call(GOLDEN / "roberta-classifier", answers=wrong)
    label, more = (hushed.plan(GOLDEN / "roberta-classifier", 4, answers=a) for a in ["label", "logits"])
    assert label["rounds"] > more["rounds"] and "logit" in str(more["exposures"])


def test_several_labels_or_none_may_be_right():
    cases = json.loads((GOLDEN / "multi-label" / "expected.json").read_text())
    cases = [case for case in cases if all(abs(logit) > 0.05 for logit in case["answer"])][:4]
    texts = [case["text"] for case in cases]

    def answers(server, wanted="label"):
        with hushed.Classifier(server.address, pin=server.pin, truncate=True, answers=wanted) as classifier:
            return classifier.labels, classifier.classify(texts)

    def likely(labels, above):
        return [{label for label, p in zip(labels, case["probabilities"]) if p > above} for case in cases]

    with hushed.serve(GOLDEN / "multi-label") as server:
        labels, found = answers(server)
        assert [set(each) for each in found] == likely(labels, 0.5) and len({len(each) for each in found}) > 1
        assert answers(server, "above:0.5")[1] == found
        for more in ["above:0.3", "top:2", "logits"]:
            with pytest.raises(hushed.UsageError):
                answers(server, more)
    with hushed.serve(GOLDEN / "multi-label", answers="logits") as server:
        assert [set(each) for each in answers(server)[1]] == likely(labels, 0.5)
        assert [set(each) for each in answers(server, "above:0.65")[1]] == likely(labels, 0.65)
    with pytest.raises(hushed.UsageError, match="problem_type"):
        hushed.serve(GOLDEN / "multi-label", answers="label")


def test_operators_open_the_likeliest_tokens(writer):
    with hushed.serve(GOLDEN / "gpt2", answers="top:3") as server:
        with hushed.Generator(server.address, pin=server.pin, answers="top:2") as generator:
            answer = generator.generate("Hello world", max_tokens=2)
            assert answer.top == []
            for _ in answer:
                assert len(set(answer.top)) == 3
    with hushed.Generator(writer.address, pin=writer.pin) as generator:
        answer = generator.generate("Hello world", max_tokens=1)
        assert list(answer) and len(answer.top) == 1
    with pytest.raises(hushed.UsageError, match="operator"):
        hushed.Generator(writer.address, pin=writer.pin, answers="top:2")


def test_classifiers_renew_their_sessions_and_keep_them_after_a_refusal():
    with hushed.serve(GOLDEN / "roberta-classifier", max_texts=2) as judge:
        with hushed.Classifier(judge.address, pin=judge.pin) as classifier:
            assert len(classifier.classify(["a", "b", "c", "d", "e"])) == 5
            with pytest.raises(hushed.InputError, match="text 1"):
                classifier.classify(["a", ""])
            with pytest.raises(hushed.InputError, match="text 4"):
                classifier.classify(["a", "b", "c", "d", ""])
            with pytest.raises(TypeError, match="text 1"):
                classifier.classify(["a", 1])
            assert classifier.classify("a") in classifier.labels


def threads():
    """The names of this process's threads, where the system tells them."""
    names = []
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            pass  # It has ended.
    return names


def margin(logits):
    first, second = sorted(logits, reverse=True)[:2]
    return first - second
