#!/bin/sh
# Runs the tests of the Python package on its oldest and newest Python, beside the python3 of `make test`: `make test-pythons`. The clients
# of the gateway want 3.10, so their tests are skipped on 3.9. A version that is not installed counts as skipped. Needs the network once.
set -eu
cd "$(dirname "$0")/.."

home=${CARGO_TARGET_DIR:-target}/python
pins=crates/hushed-python/tests/requirements.txt
cargo xtask python-wheel
skipped=""
for version in 3.9 3.13; do
    python=$(scripts/find_python.sh "$version") || { skipped="$skipped $version"; continue; }
    venv=$home/venv-$version
    if ! cmp -s "$pins" "$venv/made"; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$pins"
        cp "$pins" "$venv/made"
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$home"/dist/*.whl
    echo "Python $version:"
    PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -q -rs --color=no -p no:cacheprovider crates/hushed-python/tests
done
[ -z "$skipped" ] || echo "skipped: these versions of Python are not installed:$skipped"
