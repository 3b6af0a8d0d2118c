"""Starts `hushed serve` and talks to it with `hushed embed` or `generate`, as a user would: two processes over TLS on loopback.

Used by the demonstrations and the accuracy report. Standard library only.
"""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A command did not do its work; the message is for the reader of the script's output."""


def binary():
    """The release binary, where cargo puts it."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "release" / "hushed"
    if not path.is_file():
        raise Failed(f"{path} is not built. Run: make build")
    return str(path)


def run(main):
    """Runs a script; its status is what `main` returns, and a failure is told in one line that begins with its name."""
    try:
        sys.exit(main())
    except Failed as problem:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)


def model_folder(*fetch):
    """The folder that the command `fetch` prints, or else the reference model's; fetched if need be."""
    out = subprocess.run(fetch or [ROOT / "scripts" / "fetch_model.sh"], stdout=subprocess.PIPE, text=True)
    if out.returncode != 0:
        raise Failed("there is no model folder: see the message above")
    return out.stdout.strip()


def hushed(*arguments, stdin=None):
    """Runs one verb with --json; its objects."""
    command = [binary(), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, input=stdin)
    if done.returncode != 0:
        raise Failed(f"`hushed {arguments[0]}` ended with {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def embeddings(rows):
    """The vectors of `clear` or `embed`, in the order of the texts."""
    found = sorted((row for row in rows if "embedding" in row), key=lambda row: row["text_index"])
    return [row["embedding"] for row in found]


def lines(texts):
    """Texts as the file that `--input -` reads."""
    return "".join(text + "\n" for text in texts)


def shown(text):
    """A model's text without what steers a terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


class Listening:
    """A verb that listens on a free port of loopback, for the length of a `with` block."""

    def __init__(self, verb, *options):
        self.command = [binary(), verb, *map(str, options), "--listen", "127.0.0.1:0", "--json", "--quiet"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            event = json.loads(line)
            if event.get("event") == "listening":
                self.address, self.pin = event["address"], event.get("certificate_sha256")
                return self
        verb = self.command[1]
        raise Failed(f"`hushed {verb}` ended with {self.process.wait()} before it listened: see the message above")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            print("it did not end within 30 s of SIGTERM and was killed", file=sys.stderr)
        self.process.stdout.close()


class Server(Listening):
    """`hushed serve`."""

    def __init__(self, model, *options):
        super().__init__("serve", model, *options)

    def embed(self, texts, *options):
        """(embeddings, what the session cost) of private texts."""
        rows = hushed("embed", "--server", self.address, "--pin", self.pin, "--input", "-", *options, stdin=lines(texts))
        return embeddings(rows), rows[-1]

    def generate(self, prompt, *options):
        """(tokens, what the session cost) of a private text, each token shown as it comes."""
        command = [binary(), "generate", "--server", self.address, "--pin", self.pin, "--json", *options, "--", prompt]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            rows = []
            for line in process.stdout:
                rows.append(json.loads(line))
                print(shown(rows[-1]["text"]) if "token" in rows[-1] else "", end="", flush=True)
        if process.returncode != 0:
            raise Failed(f"`hushed generate` ended with {process.returncode}: see the message above")
        return rows[:-1], rows[-1]
