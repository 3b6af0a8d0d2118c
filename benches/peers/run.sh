#!/usr/bin/env bash
# Runs the peers and writes out/peers.jsonl. See benches/peers/README.md.
#   benches/peers/run.sh                                a short selection (more than twenty-five minutes on two cores, 17 GB)
#   benches/peers/run.sh ntt|spu|lattigo|openfhe|poulpy one of them
# A peer whose tools are not here is named and left out; asked for alone, it is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
which=${1:-all}
mkdir -p out
results=out/peers.jsonl
: >"$results"

# lacks PEER TOOL: says so; fails if that peer was asked for alone.
lacks() {
    echo "peers: $1 left out, it needs $2" >&2
    [[ $which == all ]]
}

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
if [[ $which == all || $which == lattigo ]]; then
    if command -v go >/dev/null; then
        (cd benches/peers/lattigo && go build -o ../../../out/peer-lattigo .)
        # Its collector otherwise doubles the 10 GB of keys.
        for mode in "-mode ntt" "-mode ops" "-mode lintrans" "-mode boot -set N16QP1767H32768H32" \
            "-mode boot -set N16QP1546H192H32"; do
            # shellcheck disable=SC2086 # the words of a mode are arguments
            GOMAXPROCS=1 GOMEMLIMIT=16GiB taskset -c 0 out/peer-lattigo $mode | tee -a "$results"
        done
    else
        lacks lattigo "Go 1.24 or later"
    fi
fi

if [[ $which == all || $which == poulpy ]]; then
    if cargo +nightly --version >/dev/null 2>&1 && grep -q avx512ifma /proc/cpuinfo; then
        RUSTFLAGS="-C target-cpu=native" cargo +nightly build --release --locked \
            --manifest-path benches/peers/poulpy/Cargo.toml --target-dir out/peer-target
        for mode in ops boot; do
            taskset -c 0 out/peer-target/release/peer-poulpy $mode | tee -a "$results"
        done
    else
        lacks poulpy "nightly Rust and a processor with AVX-512 IFMA"
    fi
fi

if [[ $which == all || $which == openfhe ]]; then
    if "${PYTHON310:-python3.10}" --version >/dev/null 2>&1; then
        venv=.venv/openfhe
        [[ -x $venv/bin/python ]] || "${PYTHON310:-python3.10}" -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet -r benches/peers/openfhe/requirements.txt
        for mode in ops boot; do
            OMP_NUM_THREADS=1 taskset -c 0 "$venv/bin/python" benches/peers/openfhe/bench.py $mode | tee -a "$results"
        done
    else
        lacks openfhe "Python 3.10 (PYTHON310 may point to it)"
    fi
fi
echo "peers: results are in $results"
