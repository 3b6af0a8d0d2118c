#!/usr/bin/env bash
# Runs the peers and writes out/peers.jsonl. See benches/peers/README.md.
#   benches/peers/run.sh            a short selection (about ten minutes on two cores)
#   benches/peers/run.sh ntt|spu    one of them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
which=${1:-all}
mkdir -p out
results=out/peers.jsonl
: >"$results"

if [[ $which == all || $which == ntt ]]; then
    # Native instructions, so that the peer has what our run-time choice has.
    RUSTFLAGS="-C target-cpu=native" cargo build --release --locked \
        --manifest-path benches/peers/tfhe-ntt/Cargo.toml --target-dir out/peer-target
    taskset -c 0 out/peer-target/release/peer-tfhe-ntt | tee -a "$results"
fi

if [[ $which == all || $which == spu ]]; then
    venv=.venv/spu
    if [[ ! -x $venv/bin/python ]]; then
        python=$(command -v python3.11 || command -v python3.10 || true)
        [[ -n $python ]] || { echo "peers: SPU has wheels for Python 3.10 and 3.11 only, and neither is here" >&2; exit 1; }
        "$python" -m venv "$venv" || { echo "peers: no venv. On Debian: apt-get install python3-venv" >&2; exit 1; }
    fi
    "$venv/bin/python" -m pip install --quiet -r benches/peers/spu/requirements.txt
    "$venv/bin/python" benches/peers/spu/bench.py warm mm_128_768_768 less_2p20 trunc_2p20 gelu_seg3_2p17 \
        softmax_clip_960x180 ln_128_768 --private --lsb | tee -a "$results"
fi
echo "peers: results are in $results"
