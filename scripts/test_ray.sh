#!/bin/sh
# Runs whole runs on Ray on this machine, two workers, one of them killed and stopped: `make test-ray`. Needs the network once, for Ray.
set -eu
cd "$(dirname "$0")/.."

home=${CARGO_TARGET_DIR:-target}/python
pins=crates/hushed-python/tests/requirements.txt
ray=ray==2.60.0
cargo xtask python-wheel
venv=$home/venv-ray
if ! { cat "$pins"; echo "$ray"; } | cmp -s - "$venv/made"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$pins"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$ray"
    { cat "$pins"; echo "$ray"; } >"$venv/made"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$home"/dist/*.whl
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -q -rs --color=no -p no:cacheprovider crates/hushed-python/tests/test_ray.py crates/hushed-python/tests/test_ray_runs.py
