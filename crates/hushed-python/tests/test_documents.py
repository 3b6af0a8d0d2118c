"""Commands in README and docs: verbs and flags exist, and the quickstart runs."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "deploy").glob("*.md"))]
HUSHED = [sys.executable, "-m", "hushed"]


def blocks(document):
    """The shell blocks of a document, with lines that go on put together."""
    text = document.read_text()
    found = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [block.replace("\\\n", " ").splitlines() for block in found]


def commands(line):
    """The words of each `hushed` and `make` in a line: `A=1 hushed …`, `… && hushed …`, `$(hushed …)`."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.wordchars += "…:,^@%+\u0021"
        lexer.commenters = "#"
        words = list(lexer)
    except ValueError:
        return []
    found, current = [], None
    for word in words:
        if word in ("hushed", "make", "hushed-server"):
            current = [word]
            found.append(current)
        elif re.fullmatch(r"[|&;()<>]+", word):
            current = None
        elif current is not None:
            current.append(word)
    return found


def lines():
    return [(document, line) for document in DOCUMENTS for block in blocks(document) for line in block]


@pytest.fixture(scope="module")
def help_of():
    known = {}

    def helps(*verb):
        if verb not in known:
            done = subprocess.run([*HUSHED, *verb, "--help"], capture_output=True, text=True, timeout=60)
            known[verb] = done.stdout if done.returncode == 0 else None
        return known[verb]

    return helps


def test_verbs_and_flags_of_the_documents_exist(help_of):
    wrong, seen = [], 0
    for document, line in lines():
        for name, *words in commands(line):
            if name != "hushed" or not words or words[0].startswith("-"):
                continue
            verb = tuple(words[:2]) if words[0] == "keys" else (words[0],)
            text = help_of(*verb)
            flags = [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
            missing = [flag for flag in flags if text is not None and not re.search(rf"{flag}\b(?!-)", text)]
            seen += 1
            if text is None or missing:
                wrong.append(f"{document.name}: {line.strip()}: {'no such verb' if text is None else missing}")
    assert not wrong, "\n".join(wrong)
    assert seen > 40, "the documents have commands"


def test_flags_of_the_deployments_exist(help_of):
    deploy = ROOT / "deploy"
    unit = (deploy / "systemd" / "hushed-server.service").read_text().replace("\\\n", " ")
    started = {
        "unit": re.search(r"^ExecStart=(.*)$", unit, re.M)[1],
        "container": re.search(r"^CMD (.*)$", (deploy / "Containerfile").read_text(), re.M)[1],
        "k8s": " ".join(re.findall(r"^ +- (--.*)$", (deploy / "k8s" / "hushed.yaml").read_text(), re.M)),
    }
    for name, line in started.items():
        flags = re.findall(r"--[a-z][a-z-]*", line)
        # `hushed-server` takes what `hushed serve` takes.
        missing = [flag for flag in flags if not re.search(rf"{flag}\b(?!-)", help_of("serve"))]
        assert len(flags) >= 5 and not missing, (name, missing)


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))
    named = {word for _, line in lines() for name, *words in commands(line) if name == "make" for word in words[:1]}
    assert named and named <= targets, named - targets


def anchors(document):
    """What links may lead to in a document: its headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    wrong, seen = [], 0
    for document in [*DOCUMENTS, *ROOT.glob("*.md")]:
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^()\s]+)\)", text):
            target, _, anchor = link.partition("#")
            if ":" in target:
                continue
            there = (document.parent / target).resolve() if target else document
            seen += 1
            if not there.exists() or anchor and anchor not in anchors(there):
                wrong.append(f"{document.name}: {link}")
    assert not wrong, "\n".join(wrong)
    assert seen > 100, "the documents link to each other"


def test_the_list_of_documents_has_all():
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"]({page.name}) |" not in index]
    assert missing == ["index.md"]


def test_the_quickstart_runs(folder, server, tmp_path):
    """Lines of README and quickstart that need neither a build nor another machine, with the tiny model."""
    (tmp_path / "texts.txt").write_text("one\nanother\n")
    ran = []
    for document in [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]:
        for line in (line for block in blocks(document) for line in block):
            line = line.split("  #")[0].strip()
            # The server is there already; the other one is on another machine.
            if not line.startswith("hushed ") or " serve " in line or "example.org" in line:
                continue
            line = line.replace("127.0.0.1:7450", server.address).replace("THE_SHA256", server.pin)
            line = line.replace("…", f"--server {server.address} --pin {server.pin}")
            line = line.replace('"$MODEL"', shlex.quote(str(folder)))
            line = shlex.join(HUSHED) + line[len("hushed") :]
            done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
            # `doctor` may find that this machine lacks something.
            assert done.returncode == 0 or (" doctor" in line and done.returncode == 1), f"{line}\n{done.stderr}"
            ran.append(line)
    assert len(ran) >= 9 and (tmp_path / "answers.jsonl").read_text().count("embedding") == 2
