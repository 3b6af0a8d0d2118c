"""Documents searched with private queries."""

import json
import subprocess
import sys
import threading

import pytest

import hushed

DOCUMENTS = ["hello private world", "the quick brown fox", "a", "jumps over the lazy dog"]


@pytest.fixture(scope="module")
def index(folder, tmp_path_factory):
    """The documents, for the tiny model."""
    documents = tmp_path_factory.mktemp("documents") / "documents.txt"
    documents.write_text("\n".join(DOCUMENTS))
    index = documents.with_suffix(".index")
    made = [sys.executable, "-m", "hushed", "index", folder, documents, "--record-bytes", "12", "--out", index]
    subprocess.run([str(part) for part in made], check=True, timeout=300)
    return index


@pytest.fixture(scope="module")
def library(folder, index):
    """A server of them."""
    with hushed.serve(folder, index=index, search_scores=True) as server:
        yield server


@pytest.fixture(scope="module")
def searcher(library):
    with hushed.Searcher(library.address, pin=library.pin) as searcher:
        yield searcher


def test_a_document_is_found_by_its_own_text(searcher):
    assert len(searcher) == len(DOCUMENTS)
    for place, text in enumerate(DOCUMENTS):
        hits = searcher.search(text, top=2)
        assert hits[0] == hushed.Hit(place, text[:12]) and len(hits) == 2
    places = [hit.place for hit in searcher.search("hello", top=50, texts=False)]
    assert sorted(places) == [0, 1, 2, 3]


def test_scores_come_where_the_operator_gives_them(searcher, folder, index):
    hits = searcher.search("a", top=4, scores=True)
    assert hits[0].place == 2 and abs(hits[0].score - 1) < 5e-3
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True) and all((score * 4096).is_integer() for score in scores)
    assert all(hit.score is None for hit in searcher.search("a", top=2))
    with hushed.serve(folder, index=index) as other:
        with hushed.Searcher(other.address, pin=other.pin) as without:
            with pytest.raises(hushed.RefusedError) as error:
                without.search("a", scores=True)
            assert error.value.name == "no-scores"


def test_what_cannot_be_searched_is_refused(searcher, server):
    with pytest.raises(ValueError):
        searcher.search("hello", top=0)
    with pytest.raises(TypeError):
        searcher.search(["hello"])
    with hushed.Searcher(server.address, pin=server.pin) as none:
        with pytest.raises(hushed.RefusedError) as error:
            none.search("hello")
        assert error.value.name == "no-index"


def test_a_server_that_is_killed_in_a_search_is_an_error_and_the_next_search_works(folder, index, tmp_path):
    def serve(port):
        arguments = [folder, "--index", index, "--cert-dir", tmp_path, "--listen", f"127.0.0.1:{port}", "--json"]
        program = [sys.executable, "-m", "hushed", "serve", *map(str, arguments)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return process, json.loads(process.stdout.readline())

    process, listening = serve(0)
    with hushed.Searcher(listening["address"], pin=listening["certificate_sha256"]) as searcher:
        assert searcher.search("hello private world", top=1)[0].place == 0
        threading.Timer(0.1, process.kill).start()
        with pytest.raises((hushed.NetworkError, hushed.RefusedError)):
            # A search takes longer than a tenth of a second, or the next one is met.
            while True:
                searcher.search("hello", top=4)
        process.wait(60)
        process.stdout.close()
        process, _ = serve(listening["address"].rsplit(":", 1)[1])
        try:
            assert searcher.search("hello private world", top=1)[0].place == 0
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


def test_ids_and_metadata_come_with_a_document(folder, tmp_path):
    documents, index = tmp_path / "documents.jsonl", tmp_path / "documents.index"
    rows = [{"text": DOCUMENTS[0], "id": "first", "metadata": {"year": 2026}}, {"text": DOCUMENTS[1]}]
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "hushed", "index", str(folder)]
    subprocess.run([*command, str(documents), "--record-bytes", "80", "--out", str(index)], check=True, timeout=300)
    again = subprocess.run([*command, str(documents), "--out", str(index)], capture_output=True, text=True, timeout=300)
    assert again.returncode == 8 and "is not overwritten" in again.stderr
    with hushed.serve(folder, index=index) as server:
        with hushed.Searcher(server.address, pin=server.pin) as searcher:
            (hit,) = searcher.search(DOCUMENTS[0], top=1)
            assert hit == hushed.Hit(0, DOCUMENTS[0], None, "first", {"year": 2026})
            (hit,) = searcher.search(DOCUMENTS[1], top=1)
            assert hit == hushed.Hit(1, DOCUMENTS[1])
    removed = [*command, "--add", str(index), "--remove-id", "first", "--out", str(index)]
    subprocess.run(removed, check=True, timeout=300)
