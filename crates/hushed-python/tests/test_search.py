"""Documents searched with private queries."""

import subprocess
import sys

import pytest

import hushed

DOCUMENTS = ["hello private world", "the quick brown fox", "a", "jumps over the lazy dog"]


@pytest.fixture(scope="module")
def library(folder, tmp_path_factory):
    """A server of the tiny model with documents."""
    documents = tmp_path_factory.mktemp("documents") / "documents.txt"
    documents.write_text("\n".join(DOCUMENTS))
    index = documents.with_suffix(".index")
    made = [sys.executable, "-m", "hushed", "index", folder, documents, "--record-bytes", "12", "--out", index]
    subprocess.run([str(part) for part in made], check=True, timeout=300)
    with hushed.serve(folder, index=index) as server:
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


def test_what_cannot_be_searched_is_refused(searcher, server):
    with pytest.raises(ValueError):
        searcher.search("hello", top=0)
    with pytest.raises(TypeError):
        searcher.search(["hello"])
    with hushed.Searcher(server.address, pin=server.pin) as none:
        with pytest.raises(hushed.RefusedError) as error:
            none.search("hello")
        assert error.value.name == "no-index"
