"""examples/rag as a person uses it, without a network but loopback."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("langchain_qdrant", reason="langchain-qdrant needs Python 3.10")
RAG = pathlib.Path(__file__).resolve().parents[3] / "examples" / "rag" / "rag.py"

# A server and the example in a name space of their own, in which only loopback is up.
SCRIPT = """
import subprocess, sys, hushed, os
folder, rag, *texts = sys.argv[1:]
with hushed.serve(folder) as server:
    os.environ.update(HUSHED_SERVER=server.address, HUSHED_PIN=server.pin, HUSHED_CACHE_DIR="cache")
    for arguments in [["add", *texts], ["add", *texts], ["ask", "hello private world"]]:
        subprocess.run([sys.executable, rag, *arguments], check=True)
"""


def alone():
    """The command that takes the network away, where the system lets us."""
    program = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    works = subprocess.run([*program, "true"], capture_output=True).returncode == 0
    return program if works else []


def test_own_documents_are_found_without_a_network(folder, tmp_path):
    texts = tmp_path / "a.txt", tmp_path / "b.txt"
    texts[0].write_text("hello private world\n\nthe quick brown fox\n\n")
    texts[1].write_text("jumps over the lazy dog")
    arguments = [sys.executable, "-c", SCRIPT, folder, RAG, *texts]
    environment = {**os.environ, "HUSHED_RAG": str(tmp_path / "index")}
    program = [*alone(), *map(str, arguments)]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = [line for line in done.stderr.splitlines() if "new of" in line]
    assert counts == ["3 new of 3 paragraphs", "0 new of 3 paragraphs"], "what is there is not sent again"
    first = done.stdout.splitlines()[0]
    assert first.endswith("a.txt, paragraph 1: hello private world") and float(first.split()[0]) > 0.99
    assert (tmp_path / "index").stat().st_mode & 0o077 == 0, "nobody else reads the vectors"
