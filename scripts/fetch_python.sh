#!/bin/sh
# Fetches what building and testing the Python package takes (maturin, pytest, numpy, clients of the gateway; pinned by hash) into .python/wheels, once for each
# version of python3. Without python3 or a network it says so and ends well: `make test` then counts the package's tests as skipped.
set -eu
cd "$(dirname "$0")/.."

pins=crates/hushed-python/tests/requirements.txt
folder=.python/wheels
say() { printf '%s\n' "fetch_python: $*; the tests of the Python package will be skipped" >&2; }

# As in xtask/src/python.rs.
version=$(python3 -c 'import sys, platform; assert sys.version_info >= (3, 9); print(platform.python_version(), platform.machine())' 2>/dev/null) ||
    { say "python3 3.9 or newer is missing"; exit 0; }
mark() { printf '%s\n' "$version"; cat "$pins"; }
if [ -f "$folder/complete" ] && mark | cmp -s - "$folder/complete"; then exit 0; fi

{ python3 -m pip --version && python3 -c 'import ensurepip, venv'; } >/dev/null 2>&1 ||
    { say "python3 has no pip or no venv. On Debian: apt-get install python3-pip python3-venv"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
echo "fetch_python: downloading maturin, pytest, numpy and clients of the gateway with pip" >&2
python3 -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$pins" -d "$folder" >&2 ||
    { say "pip could not download them: see the message above"; exit 0; }
mark >"$folder/complete.new"
mv "$folder/complete.new" "$folder/complete"
