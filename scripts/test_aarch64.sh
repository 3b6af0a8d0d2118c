#!/bin/sh
# Builds the commands for aarch64 and runs the tests of the arithmetic, of keys and of ciphertexts there, in an emulator:
# NEON against the portable kernels. An emulator shows that words are right, and nothing about speed.
set -eu
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
need() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 && return
    printf 'test_aarch64: %s is missing. On Debian: apt-get install %s\n' "$1" "$2" >&2
    exit 1
}
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
need qemu-aarch64 qemu-user
rustup target add --quiet "$target" 2>/dev/null || rustup target add "$target"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++
# One test starts itself again with kernels denied, which an emulator cannot do; what it runs is run here.
cargo test --locked --target "$target" -p hushed-math -p hushed-rlwe -p hushed-ckks --lib -- --skip lesser_kernels_make_the_same_bytes
HUSHED_DENY_FMA=1 cargo test --locked --target "$target" -p hushed-ckks --lib -- known_answers::seeded_work_is_what_it_was
cargo build --locked --target "$target" -p hushed-cli -p hushed-server
