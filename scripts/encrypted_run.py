"""A batch of texts through the real model under encryption, verb by verb, and how near the answers are to those in the clear.

    python3 scripts/encrypted_run.py [--layers 1] [--rows 32] [--input FILE] [--work out/encrypted] [--max-memory GIB] [--json]

Real weights, N = 2^16 at 128 bits: plan, manifest, keys, request, run, reply, then `hushed clear` of the same texts beside it. Six
layers are the whole model; fewer are the same model cut after them. One layer of 32 rows takes a quarter of an hour on two cores, six
of 128 rows two hours, and all up to 20 GiB: `hushed plan MODEL --protocol fhe --measure quick` says what this machine needs. What was
done is kept in the folder --work: started again after a crash or Ctrl-C, it goes on from the last whole layer. Texts that are longer than
the rows are cut, and not compared. Exits with 1 when an embedding is below 0.999 or a ranking changes.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

from two_processes import ROOT, Failed, binary, hushed, model_folder

DATA = ROOT / "data"
CALIBRATION = DATA / "calibration-fhe-minilm.json"
CANARY = "a canary sings in the mine"
# Of these nothing was calibrated with.
TEXTS = [DATA / "unseen.txt", DATA / "search" / "documents.txt", DATA / "search" / "queries.txt"]


def cut(model, calibration, layers, folder):
    """The model and its calibration after `layers` layers; the weights are the same file."""
    chosen = json.loads(calibration.read_text(encoding="utf-8"))
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    if not 1 <= layers <= config["num_hidden_layers"]:
        raise Failed(f"the model has {config['num_hidden_layers']} layers, not {layers}")
    folder.mkdir(exist_ok=True)
    for entry in model.iterdir():
        copy = folder / entry.name
        if not copy.exists():
            copy.symlink_to(entry.resolve())
    config["num_hidden_layers"] = layers
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    chosen["layers"] = chosen["layers"][:layers]
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(chosen), encoding="utf-8")
    return folder, path


def shown(*arguments):
    """Runs one verb with its progress on the terminal; seconds."""
    began = time.monotonic()
    done = subprocess.run([binary(), *map(str, arguments)])
    if done.returncode != 0:
        raise Failed(f"`hushed {arguments[0]}` ended with {done.returncode}; the same command goes on from where it was")
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=1, help="the first so many of the model's six (default 1)")
    parser.add_argument("--rows", type=int, default=32, help="rows a text, a power of two up to 128 (default 32)")
    parser.add_argument("--input", type=pathlib.Path, help="texts, one a line, as many as places less one (default: those of data/)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "out" / "encrypted", help="folder of what is done so far")
    parser.add_argument("--max-memory", type=int, default=20, help="GiB that the plan may take (default 20)")
    parser.add_argument("--json", action="store_true", help="the comparison as one object")
    options = parser.parse_args()
    work = options.work / f"{options.layers}x{options.rows}"
    work.mkdir(parents=True, exist_ok=True)
    model, calibration = cut(pathlib.Path(model_folder()), CALIBRATION, options.layers, work / "model")
    texts, plan, public = work / "texts.txt", work / "manifest.json", work / "model.public"
    keys, request, reply = work / "keys", work / "request", work / "reply"
    took = {}
    if not request.exists():
        files = [options.input] if options.input else TEXTS
        texts.write_text("".join(file.read_text(encoding="utf-8") for file in files), encoding="utf-8")
        # Half of what an earlier start left belongs to another plan.
        shutil.rmtree(keys, ignore_errors=True)
        took["plan"] = shown(
            "plan", model, "--force", "--protocol", "fhe", "--rows", options.rows, "--max-memory", options.max_memory, "--calibration", calibration,
            "--manifest", plan, "--public-model", public, "--public-embedding", "--canary", CANARY)
        took["keygen"] = shown("keygen", "--manifest", plan, "--out", keys)
        took["encrypt"] = shown(
            "encrypt", "--manifest", plan, "--public", public, "--keys", keys, "--input", texts, "--truncate", "--out", request)
    took["run"] = shown(
        "run", model, "--manifest", plan, "--keys", keys / "evaluation.keys", "--request", request, "--out", reply,
        "--calibration", calibration, "--checkpoint", work / "checkpoints", "--spill", work, "--steps")
    answers, clear = work / "answers.json", work / "clear.json"
    for path, rows in [
        (answers, hushed("decrypt", "--manifest", plan, "--public", public, "--keys", keys, "--reply", reply)),
        (clear, hushed("clear", model, "--input", texts, "--truncate")),
    ]:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for verb, seconds in took.items():
        print(f"{verb}: {seconds:.0f} s", file=sys.stderr)
    compare = [sys.executable, ROOT / "scripts" / "compare_answers.py", answers, clear]
    return subprocess.run(compare + ["--json"] * options.json).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        sys.exit(f"encrypted_run: {problem}")
