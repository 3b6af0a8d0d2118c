#!/usr/bin/env bash
# Runs every fuzz target for a while: fuzz/run.sh [SECONDS A TARGET]. Needs nightly Rust and cargo-fuzz.
# Corpora grow in fuzz/corpus/, findings lie in fuzz/artifacts/; git ignores both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
if ! rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    echo "fuzz: nightly Rust is missing. Run: rustup toolchain install nightly" >&2
    exit 1
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz is missing. Run: cargo install --locked cargo-fuzz" >&2
    exit 1
fi
found=0
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    echo "fuzz: $name, $seconds s"
    cargo +nightly fuzz run "$name" -- -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 || found=1
done
exit "$found"
