#!/bin/sh
# Fetches PoCL, an OpenCL driver that runs on the processor, pinned by hash, into .opencl/ once: the tests of the GPU's
# kernels run in it. Without python3, a network or a package for this machine it says so and ends well: `make test` then
# counts those tests as skipped.
set -eu
cd "$(dirname "$0")/.."

pins=scripts/opencl-requirements.txt
folder=.opencl
say() { printf '%s\n' "fetch_opencl: $*; the tests of GPU kernels will be skipped" >&2; }

if [ -f "$folder/complete" ] && cmp -s "$pins" "$folder/complete"; then exit 0; fi
python3 -m pip --version >/dev/null 2>&1 || { say "python3 has no pip. On Debian: apt-get install python3-pip"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
echo "fetch_opencl: downloading PoCL with pip (50 MB)" >&2
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --require-hashes --only-binary :all: --no-deps \
    -r "$pins" --target "$folder/packages" >&2 || { say "pip could not download it: see the message above"; exit 0; }
library=$(find "$folder/packages" -name 'libpocl*.so*' | head -n 1)
[ -n "$library" ] || { say "the package has no driver"; exit 0; }
ln -s "${library#"$folder"/}" "$folder/driver.so"
cp "$pins" "$folder/complete"
