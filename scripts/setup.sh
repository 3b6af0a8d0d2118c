#!/bin/sh
# Checks that this machine has what a build needs, says what to install where not, and fetches the crates
# of Cargo.lock. After it has run once, building and testing need no network.
set -eu
cd "$(dirname "$0")/.."

missing=0
need() { # command, what to do
    command -v "$1" >/dev/null 2>&1 && return
    printf 'setup: %s is missing. %s\n' "$1" "$2" >&2
    missing=1
}
need cc "It links the program. On Debian: apt-get install build-essential"
need cmake "It builds the TLS library's cryptography. On Debian: apt-get install cmake"
need python3 "It unpacks the model and runs the demonstration. On Debian: apt-get install python3 python3-pip"
need cargo "Install Rust by https://rustup.rs; the version comes from rust-toolchain.toml by itself."
[ "$missing" -eq 0 ] || exit 1

wanted=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
found=$(cargo --version 2>/dev/null | cut -d' ' -f2)
if [ "$found" != "$wanted" ]; then
    printf 'setup: this repository is built with Rust %s, and cargo here is %s.\n' "$wanted" "${found:-not usable}" >&2
    printf 'setup: rustup takes the right one by itself: install it from https://rustup.rs, or run: rustup toolchain install %s\n' "$wanted" >&2
    exit 1
fi

cargo fetch --locked --quiet || {
    printf 'setup: the crates of Cargo.lock could not be fetched: see the message above.\n' >&2
    exit 1
}
