"""The command in the wheel, and the plan that it prints."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest

import hushed


def command(*arguments, program=(sys.executable, "-m", "hushed")):
    return subprocess.run([*program, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def exact(found):
    """What is the same each time: seconds are those of this machine, which is measured."""
    return {name: value for name, value in found.items() if name not in ("seconds", "seconds_in_all", "pace")}


def test_the_plan_is_what_the_command_prints(folder):
    printed = command("plan", folder, "--tokens", "5,9", "--bucket", "8", "--steps", "--json")
    assert printed.returncode == 0, printed.stderr
    *steps, last = [json.loads(line) for line in printed.stdout.splitlines()]
    plan = hushed.plan(folder, tokens=[5, 9], bucket=8)
    assert exact(plan) == exact(last["plan"]) and plan["tokens"] == [8, 16]
    assert plan["seconds"] > 0 and set(plan["pace"]) == {"products", "transfers"}
    with_steps = hushed.plan(folder, tokens=[5, 9], bucket=8, steps=True)
    assert [exact(step) for step in with_steps["steps"]] == [exact(line["step"]) for line in steps] and len(steps) > 10
    assert exact(hushed.plan(folder, tokens=8)) == exact(hushed.plan(folder, tokens=[8]))
    near, far = (hushed.plan(folder, tokens=8, net=net) for net in ("lan", "80ms/200mbit"))
    assert far["link"] == "80ms/200mbit" and far["rounds"] < near["rounds"]
    assert far["seconds_in_all"] > far["seconds"] + 0.04 * far["rounds"]
    assert hushed.plan(folder, tokens=8, public_table=True)["bytes_up"] < hushed.plan(folder, tokens=8)["bytes_up"]


def test_lengths_that_have_no_plan(folder):
    for tokens, kind, name in [
        ([2], hushed.InputError, "tokens"),
        ([10**6], hushed.InputError, "tokens"),
        ([], hushed.UsageError, "usage"),
        ([0], hushed.UsageError, "limit"),
    ]:
        with pytest.raises(kind) as caught:
            hushed.plan(folder, tokens=tokens)
        assert caught.value.name == name


def test_the_wheel_has_the_licences_of_what_it_links():
    package = importlib.metadata.distribution("hushed")
    folder = pathlib.Path(package.locate_file(f"hushed-{package.version}.dist-info/licenses"))
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert "Copyright the Hushed authors" in (folder / "NOTICE").read_text()
    third_party = (folder / "THIRD-PARTY.txt").read_text()
    # Rust, C inside a crate, and what only a client's side links.
    for part in ["\nrustls v", "third_party/fiat/LICENSE", "\npyo3 v", "\naxum v"]:
        assert part in third_party, part
    assert set(package.metadata.get_all("License-File")) == {"LICENSE", "NOTICE", "THIRD-PARTY.txt"}


def test_the_wheel_has_the_command(folder):
    script = pathlib.Path(sys.executable).parent / "hushed"
    assert script.exists()
    for program in [(str(script),), (sys.executable, "-m", "hushed")]:
        version = command("--version", program=program)
        assert (version.returncode, version.stderr) == (0, "") and version.stdout.startswith("hushed ")
    assert command("check", folder).returncode == 0
    wrong = command("no-such-verb")
    assert wrong.returncode == 2 and "no-such-verb" in wrong.stderr


def test_the_command_embeds_with_a_server_in_this_process(server, published):
    text, answer = published[0]
    done = command("embed", "--server", server.address, "--pin", server.pin, "--json", text)
    assert done.returncode == 0, done.stderr
    embedding = json.loads(done.stdout.splitlines()[0])["embedding"]
    assert hushed.SentenceEncoder.similarity_pairwise(embedding, answer)[0] >= 0.9999
    refused = command("embed", "--server", server.address, "--pin", "0" * 64, "--json", text)
    assert refused.returncode == 5
    assert json.loads(refused.stderr.splitlines()[-1])["error"]["name"] == "wrong-pin"


def test_the_demonstration_finds_the_nearest_document(folder):
    demo = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "python_demo.py"
    first = "Turn the main valve off before you open a pipe."
    done = command(folder, first, program=(sys.executable, str(demo)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(first)
    assert "The server saw [" in done.stdout
