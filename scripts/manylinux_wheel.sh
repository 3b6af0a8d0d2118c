#!/bin/sh
# Builds the wheel for Linux systems with glibc 2.28 or newer (manylinux_2_28: Debian 10, Ubuntu 20.04, RHEL 8) in dist/, whatever this
# machine has: zig links against the symbols of that version. auditwheel reads from the result what it needs. PROFILE=dev builds faster.
set -eu
cd "$(dirname "$0")/.."

tag=manylinux_2_28
mkdir -p "${CARGO_TARGET_DIR:-target}" dist
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
venv=$target/python/zig
fail() { printf '%s\n' "manylinux_wheel: $*" >&2; exit 1; }
[ "$(uname -sm)" = "Linux x86_64" ] || fail "this is for Linux on x86-64"
if ! cmp -s scripts/manylinux-requirements.txt "$venv/made"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || fail "python3 has no venv. On Debian: apt-get install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps -r scripts/manylinux-requirements.txt ||
        fail "pip could not fetch zig: see the message above"
    cp scripts/manylinux-requirements.txt "$venv/made"
fi
cargo xtask third-party hushed-python crates/hushed-python/THIRD-PARTY.txt
rm -f dist/*"$tag"*.whl
# A folder of its own: what was compiled for this machine's glibc must not be linked.
PATH="$venv/bin:$PATH" CARGO_TARGET_DIR="$target/$tag" "$venv/bin/maturin" build --quiet --zig --compatibility "$tag" --profile "${PROFILE:-dist}" \
    --manifest-path crates/hushed-python/Cargo.toml --interpreter python3 --out dist
wheel=$(ls dist/*"$tag"*.whl)
"$venv/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -E "consistent with the following platform tag: +\"manylinux_2_(5|12|17|2[0-8])_" >/dev/null ||
    { "$venv/bin/auditwheel" show "$wheel" >&2; fail "$wheel needs a newer glibc than its name says"; }
# It runs, on every Python here that a wheel for 3.9 or newer is for.
for version in 3.9 3.10 3.11 3.12 3.13 3.14; do
    python=$(scripts/find_python.sh "$version") || continue
    trial=$(mktemp -d)
    "$python" -m venv "$trial" && "$trial/bin/pip" install --quiet --disable-pip-version-check "$wheel" ||
        { rm -rf "$trial"; fail "$wheel cannot be installed for Python $version"; }
    "$trial/bin/hushed" --version >/dev/null && "$trial/bin/python" -c 'import hushed; hushed.SentenceEncoder' ||
        { rm -rf "$trial"; fail "$wheel does not run on Python $version"; }
    rm -rf "$trial"
    echo "runs on Python $version"
done
printf '%s\n' "$wheel"
