"""Commands in README and docs: verbs and flags exist, and README and quickstart run."""

import json
import os
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
    return [block.replace("\\\n", " ").splitlines() for block in marked(document, "sh")]


def marked(document, language):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", document.read_text(), re.M | re.S)


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


def spans(document):
    """The code within sentences."""
    text = re.sub(r"^ *```.*?^ *```$", "", document.read_text(), flags=re.M | re.S)
    code = r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)"
    return [span for paragraph in text.split("\n\n") for _, span in re.findall(code, paragraph, re.S)]


def flags_of(words):
    return [flag[0] for word in words if (flag := re.match(r"--[a-z][a-z0-9-]*", word))]


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


def missing(flags, text):
    return [flag for flag in flags if not re.search(rf"{flag}\b(?!-)", text)]


def test_verbs_and_flags_of_the_documents_exist(help_of):
    wrong, seen = [], 0
    for document, line in lines():
        for name, *words in commands(line):
            if name != "hushed" or not words or words[0].startswith("-"):
                continue
            verb = tuple(words[:2]) if words[0] == "keys" else (words[0],)
            text = help_of(*verb)
            lacks = ["no such verb"] if text is None else missing(flags_of(words), text)
            seen += 1
            if lacks:
                wrong.append(f"{document.name}: {line.strip()}: {lacks}")
    assert not wrong, "\n".join(wrong)
    assert seen > 40, "the documents have commands"


#: Flags that are written without their program, which is another one: `hushed-bench`, `hushed-server work`, poulpy's.
OF_OTHERS = {"--only", "--until-empty", "--private", "--lsb"}


def test_flags_within_sentences_exist(help_of):
    """`--flag …` is one of some verb, `verb --flag …` and `hushed verb --flag …` of that verb."""
    commands_of = lambda *verb: help_of(*verb).partition("Commands:")[2].partition("Options:")[0]  # noqa: E731
    listed = lambda *verb: re.findall(r"^  (?!help)([a-z]+) ", commands_of(*verb), re.M)  # noqa: E731
    help_by_verb = {verb: help_of(verb) for verb in listed()}
    help_by_verb["keys"] += "".join(help_of("keys", verb) for verb in listed("keys"))
    every = "".join(help_by_verb.values())
    wrong, seen = [], 0
    for document in sorted({*DOCUMENTS, *ROOT.glob("*.md")}):
        for span in spans(document):
            words = span.removeprefix("hushed ").split()
            flags = [flag for flag in flags_of(words) if flag not in OF_OTHERS]
            if words[:1] and words[0].startswith("--"):
                lacks = missing(flags, every)
            elif words[:1] and words[0] in help_by_verb:
                lacks = missing(flags, help_by_verb[words[0]])
            else:
                continue
            seen += len(flags)
            if lacks:
                wrong.append(f"{document.name}: {span}: {lacks}")
    assert not wrong, "\n".join(wrong)
    assert seen > 200, "the documents name flags"


def test_flags_of_the_deployments_exist(help_of):
    deploy = ROOT / "deploy"
    unit = lambda name: re.search(  # noqa: E731
        r"^ExecStart=(.*)$", (deploy / "systemd" / name).read_text().replace("\\\n", " "), re.M
    )[1]
    started = {
        "unit": unit("hushed-server.service"),
        "gateway unit": unit("hushed-gateway.service"),
        "container": re.search(r"^CMD (.*)$", (deploy / "Containerfile").read_text(), re.M)[1],
        **{
            name: " ".join(re.findall(r"^ +- (--.*)$", (deploy / "k8s" / f"{name}.yaml").read_text(), re.M))
            for name in ("hushed", "gateway", "encrypted")
        },
    }
    for name, line in started.items():
        flags = re.findall(r"--[a-z][a-z-]*", line)
        # `hushed-server` takes what `hushed serve` takes, and its `work` nothing else.
        verb = "gateway" if name.startswith("gateway") else "serve"
        lacks = missing(flags, help_of(verb))
        assert len(flags) >= 5 and not lacks, (name, lacks)


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))
    named = {word for _, line in lines() for name, *words in commands(line) if name == "make" for word in words[:1]}
    assert named and named <= targets, named - targets


def test_folders_of_models_are_those_that_exist():
    """What `scripts/fetch_model.sh` makes, or a folder of this repository."""
    fetched = {"all-MiniLM-L6-v2"}
    named = {name for document in DOCUMENTS for name in re.findall(r"(?<![\w./])\.?models/([\w.-]+)", document.read_text())}
    own = {name for document in DOCUMENTS for name in re.findall(r"(?<![\w./])data/[\w./-]*\w(?![\w*{])", document.read_text())}
    assert named <= fetched, named - fetched
    missing = {name for name in own if not (ROOT / name).exists()}
    assert not missing, missing


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


#: What a line begins with that needs a build or the network: `make test` has built, and installs the wheel.
ELSEWHERE = ("make", "cargo", "git", "export", "python3", "pip")


def test_the_quickstart_runs(folder, tmp_path):
    """Every line of README and quickstart but those that build or fetch, one after the other, with the tiny model."""
    environment = {**os.environ, "HOME": str(tmp_path), "MODEL": str(folder)}
    environment = {name: value for name, value in environment.items() if not name.startswith("XDG_")}
    (tmp_path / "texts.txt").write_text("one\nanother\n")
    servers, ran, reached, token = [], [], "", ""

    def start(call, line, **named):
        options = dict(shell=True, cwd=tmp_path, env=environment, text=True)
        return call(re.sub("^hushed", lambda _: f"exec {shlex.join(HUSHED)}", line), **options, **named)

    try:
        for line in (line for name in ["README.md", "docs/quickstart.md"] for block in blocks(ROOT / name) for line in block):
            line = re.split(r"(?:^|  )#", line)[0].strip()
            if not line or line.split()[0] in ELSEWHERE:
                continue
            if line.startswith("hushed serve"):
                line = re.sub(r"--listen \S+", "--listen 127.0.0.1:0 --json", line)
                servers.append(start(subprocess.Popen, line, stdout=subprocess.PIPE))
                said = json.loads(servers[-1].stdout.readline())
                reached = f"--server {said['address']} --pin {said['certificate_sha256']}"
                token = " --token-file token" if "--tokens" in line else ""
                ran.append(line)
                continue
            line = re.sub(r"--server \S+ --pin THE_SHA256", lambda _: reached, line)
            line = line.replace("…", f"{reached}{token}") if line.startswith("hushed") else line
            done = start(subprocess.run, line, capture_output=True, timeout=300)
            # `doctor` may find that this machine lacks something.
            assert done.returncode == 0 or (line == "hushed doctor" and done.returncode == 1), f"{line}\n{done.stderr}"
            ran.append(line)
    finally:
        for server in servers:
            server.terminate()
            server.wait(60)
            server.stdout.close()
    assert len(servers) == 2 and len(ran) >= 15, ran
    assert (tmp_path / "answers.jsonl").read_text().count("embedding") == 2


def test_the_python_of_the_readme_runs(folder, tmp_path):
    """As it stands there, with the tiny model by the folder's name."""
    (tmp_path / ".models").mkdir()
    (tmp_path / ".models" / "all-MiniLM-L6-v2").symlink_to(folder)
    blocks = marked(ROOT / "README.md", "python")
    assert len(blocks) == 1
    done = subprocess.run([sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\(2, \d+\) .*Cost\(tokens=\[", done.stdout, re.S), done.stdout
