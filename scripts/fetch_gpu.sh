#!/bin/sh
# Fetches what the tests of the GPU's kernels need, pinned by hash, into .gpu/ once: PoCL, an OpenCL driver that runs on
# the processor, and NVRTC, which compiles for NVIDIA cards. Without python3, a network or packages for this machine it
# says so and ends well: `make test` then counts those tests as skipped.
set -eu
cd "$(dirname "$0")/.."

pins=scripts/gpu-requirements.txt
folder=.gpu
say() { printf '%s\n' "fetch_gpu: $*; tests of GPU kernels will be skipped" >&2; }
link() {
    library=$(find "$folder/packages" -name "$2" | head -n 1)
    [ -n "$library" ] || { say "the packages have no $2"; exit 0; }
    ln -s "${library#"$folder"/}" "$folder/$1"
}

if [ -f "$folder/complete" ] && cmp -s "$pins" "$folder/complete"; then exit 0; fi
python3 -m pip --version >/dev/null 2>&1 || { say "python3 has no pip. On Debian: apt-get install python3-pip"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
echo "fetch_gpu: downloading PoCL and NVRTC with pip (110 MB)" >&2
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --require-hashes --only-binary :all: --no-deps \
    -r "$pins" --target "$folder/packages" >&2 || { say "pip could not download them: see the message above"; exit 0; }
link driver.so 'libpocl*.so*'
link nvrtc.so 'libnvrtc.so.*'
cp "$pins" "$folder/complete"
