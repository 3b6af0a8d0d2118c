"""Threads, signals, forks, pickling, and the ends of sessions."""

import copy
import gc
import os
import pickle
import signal
import threading
import time

import pytest

import hushed


def test_threads_share_an_encoder(encoder):
    texts = ["a", "b c", "d e f", "g h i j"]
    alone = encoder.encode(texts)
    answers = [None] * len(texts)

    def work(i):
        answers[i] = encoder.encode(texts[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert encoder.similarity_pairwise(alone, answers).min() >= 0.9999


def test_python_runs_while_a_call_waits(encoder):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(None)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    encoder.encode(["a b c", "d"], batch_size=1)
    done.set()
    thread.join()
    assert len(ticks) > 10


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: a shell without job control starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_call_and_not_the_encoder(server, interruptible):
    with hushed.SentenceEncoder(server.address, pin=server.pin) as encoder:
        encoder.encode("a")
        before = encoder.last_cost
        begun = []

        def interrupt():
            begun.append(True)
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            # Minutes of work, if it were done.
            encoder.encode(["a b c d e f g h"] * 900, batch_size=1)
        timer.join()
        assert begun and encoder.last_cost is before
        assert encoder.encode("a").shape == (encoder.get_sentence_embedding_dimension(),)
        assert encoder.last_cost.sessions == 1, "the interrupted session is over"


def test_an_exception_of_the_progress_bar_ends_the_call(encoder, monkeypatch):
    class Broken(Exception):
        pass

    def broken(*_):
        raise Broken

    monkeypatch.setattr(hushed._progress.Bar, "__call__", broken)
    with pytest.raises(Broken):
        encoder.encode(["a"] * 50, batch_size=1, show_progress_bar=True)
    monkeypatch.undo()
    assert encoder.encode(["a"]).shape[0] == 1


def in_child(work):
    """What ``work`` returns in a forked process, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__} {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    end = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_refuses_and_leaves_the_session_alone(server):
    with hushed.SentenceEncoder(server.address, pin=server.pin) as encoder:
        encoder.encode("a")

        def work():
            names = []
            for call in [
                lambda: encoder.encode("a"),
                lambda: hushed.SentenceEncoder(server.address, pin=server.pin),
            ]:
                try:
                    call()
                    names.append("answered")
                except hushed.UsageError as error:
                    names.append(error.name)
            encoder.close()
            server.close()
            return " ".join(names)

        assert in_child(work) == "forked forked"
        encoder.encode("a")
        assert encoder.last_cost.sessions == 0, "the parent's session goes on"


def test_nothing_pickles(encoder, server):
    for thing in [encoder, server]:
        for attempt in [pickle.dumps, copy.copy, copy.deepcopy]:
            with pytest.raises(TypeError, match="cannot be pickled"):
                attempt(thing)
        with pytest.raises(TypeError):
            pickle.dumps(thing._native)


def connects(server):
    """Whether the one place of a server becomes free: it learns of an end a moment later."""
    for _ in range(200):
        try:
            return hushed.SentenceEncoder(server.address, pin=server.pin)
        except hushed.RefusedError as error:
            assert error.name == "too-many-sessions"
            time.sleep(0.05)
    return None


def test_sessions_end_by_close_with_and_collection(folder):
    with hushed.serve(folder, max_sessions=1) as server:
        encoder = hushed.SentenceEncoder(server.address, pin=server.pin)
        encoder.close()
        encoder.close()
        with connects(server) as second:
            second.encode("a")
        third = connects(server)
        third.encode("a")
        del third
        gc.collect()
        assert connects(server) is not None
        encoder.close()


def test_a_closed_encoder_opens_another_session(server):
    encoder = hushed.SentenceEncoder(server.address, pin=server.pin)
    encoder.close()
    encoder.encode("a")
    assert encoder.last_cost.sessions == 1
    encoder.close()


def test_a_server_that_has_gone_is_a_network_error(folder, tmp_path):
    server = hushed.serve(folder, certificates=tmp_path / "certificates")
    encoder = hushed.SentenceEncoder(server.address, pin=server.pin)
    server.close()
    server.close()
    with pytest.raises((hushed.NetworkError, hushed.RefusedError)):
        encoder.encode("a")
    with pytest.raises(hushed.NetworkError) as caught:
        encoder.encode("a")
    assert caught.value.name == "unreachable"
    port = int(server.address.rsplit(":", 1)[1])
    with hushed.serve(folder, certificates=tmp_path / "certificates", port=port) as again:
        assert again.pin == server.pin, "the certificate is kept in its folder"
        assert encoder.encode("a").ndim == 1
