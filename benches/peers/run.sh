#!/usr/bin/env bash
# Runs ours and the peers by turns, operation by operation, writes out/peers.jsonl and prints both beside each other. See benches/peers/README.md.
#   benches/peers/run.sh                                        a short selection (more than half an hour on two cores, 17 GB)
#   benches/peers/run.sh ntt|spu|lattigo|openfhe|poulpy|tenseal|orion   one of them, and ours
#   HUSHED_PEER_ROUNDS=3 benches/peers/run.sh …                 so many turns; the report takes medians
# A peer whose tools are not here is named and left out; asked for alone, it is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
which=${1:-all}
case $which in all | ntt | spu | lattigo | openfhe | poulpy | tenseal | orion) ;; *) echo "peers: no peer $which" >&2; exit 2 ;; esac
bench=${CARGO_TARGET_DIR:-target}/dist/hushed-bench
mkdir -p out
results=out/peers.jsonl
: >"$results"
have=()

asked() { [[ $which == all || $which == "$1" ]]; }

# lacks PEER TOOL: says so; fails if that peer was asked for alone.
lacks() {
    echo "peers: $1 left out, it needs $2" >&2
    [[ $which == all ]]
}

# any PEER …: is one of them here?
any() {
    local peer
    for peer in "$@"; do
        if [[ " ${have[*]:-} " == *" $peer "* ]]; then return 0; fi
    done
    return 1
}

# in_python PEER VERSION PYTHON: installs it in a venv of this Python.
in_python() {
    if "$3" --version >/dev/null 2>&1; then
        [[ -x .venv/$1/bin/python ]] || "$3" -m venv ".venv/$1"
        ".venv/$1/bin/python" -m pip install --quiet -r "benches/peers/$1/requirements.txt"
        have+=("$1")
    else
        lacks "$1" "Python $2 (PYTHON${2/./} may point to it)"
    fi
}

keep() { tee -a "$results"; }

# What can be built is built before anything is measured.
cargo build --profile dist --locked -p hushed-bench
if asked ntt; then
    # Native instructions, so that the peer has what our run-time choice has.
    RUSTFLAGS="-C target-cpu=native" cargo build --release --locked \
        --manifest-path benches/peers/tfhe-ntt/Cargo.toml --target-dir out/peer-target
    have+=(ntt)
fi
if asked spu; then
    python=$(command -v python3.11 || command -v python3.10 || true)
    if [[ -x .venv/spu/bin/python || -n $python ]]; then
        if [[ ! -x .venv/spu/bin/python ]]; then
            "$python" -m venv .venv/spu || { echo "peers: no venv. On Debian: apt-get install python3-venv" >&2; exit 1; }
        fi
        .venv/spu/bin/python -m pip install --quiet -r benches/peers/spu/requirements.txt
        have+=(spu)
    else
        lacks spu "Python 3.10 or 3.11"
    fi
fi
if asked lattigo; then
    if command -v go >/dev/null; then
        (cd benches/peers/lattigo && go build -o ../../../out/peer-lattigo .)
        have+=(lattigo)
    else
        lacks lattigo "Go 1.24 or later"
    fi
fi
if asked poulpy; then
    if cargo +nightly --version >/dev/null 2>&1 && grep -q avx512ifma /proc/cpuinfo; then
        RUSTFLAGS="-C target-cpu=native" cargo +nightly build --release --locked \
            --manifest-path benches/peers/poulpy/Cargo.toml --target-dir out/peer-target
        have+=(poulpy)
    else
        lacks poulpy "nightly Rust and a processor with AVX-512 IFMA"
    fi
fi
if asked openfhe; then
    in_python openfhe 3.10 "${PYTHON310:-python3.10}"
fi
if asked tenseal; then
    in_python tenseal 3.11 "${PYTHON311:-python3.11}"
fi
# Its PyTorch is several gigabytes, so that it is only installed if it is asked for.
if [[ $which == orion ]]; then
    in_python orion 3.11 "${PYTHON311:-python3.11}"
fi

# Each runs one thing on the first core; a peer that is not here, nothing.
ours() { taskset -c 0 "$bench" "$@" --threads 1 --json | keep; }
tfhe_ntt() { if any ntt; then taskset -c 0 out/peer-target/release/peer-tfhe-ntt | keep; fi; }
# Its collector otherwise doubles the 10 GB of keys.
lattigo() { if any lattigo; then GOMAXPROCS=1 GOMEMLIMIT=16GiB taskset -c 0 out/peer-lattigo -mode "$@" | keep; fi; }
poulpy() { if any poulpy; then taskset -c 0 out/peer-target/release/peer-poulpy "$@" | keep; fi; }
openfhe() {
    if any openfhe; then
        OMP_NUM_THREADS=1 taskset -c 0 .venv/openfhe/bin/python benches/peers/openfhe/bench.py "$@" | keep
    fi
}
# What its Go part lets lie would double its 8 GB of diagonals.
orion() {
    if any orion; then
        GOMAXPROCS=1 GOMEMLIMIT=9GiB OMP_NUM_THREADS=1 taskset -c 0 .venv/orion/bin/python benches/peers/orion/bench.py "$@" |
            keep
    fi
}
tenseal() { if any tenseal; then taskset -c 0 .venv/tenseal/bin/python benches/peers/tenseal/bench.py | keep; fi; }

for ((round = 1; round <= ${HUSHED_PEER_ROUNDS:-1}; round++)); do
    if any ntt lattigo; then
        ours ntt
        tfhe_ntt
        lattigo ntt
    fi
    if any lattigo poulpy openfhe; then
        ours ckks
        lattigo ops
        poulpy ops
        openfhe ops
    fi
    if any lattigo; then
        ours lintrans
        lattigo lintrans
        ours ffn --only "over all slots"
        lattigo ffn
        ours matmul --only '"dimension":16,'
        lattigo matmul -only '"dimension":16,'
    fi
    if any lattigo orion; then
        ours matvec --only '"inputs":768,'
        lattigo matvec -only '"inputs":768,'
        orion
    fi
    if any tenseal orion; then
        ours fhe-network --only '"network":"mlp"'
        tenseal
        orion mlp
    fi
    if any lattigo poulpy openfhe; then
        # The quote ends the name: not the precise set.
        ours bootstrap --only 'n16-boot-14x40"'
        lattigo boot -set N16QP1767H32768H32
        poulpy boot
        openfhe boot
        lattigo boot -set N16QP1546H192H32
    fi
    if any spu; then
        # Two parties with a core each, which both programs see to.
        "$bench" olt --only 768 --json | keep
        "$bench" gelu --json | keep
        "$bench" softmax --only 960 --json | keep
        .venv/spu/bin/python benches/peers/spu/bench.py warm mm_128_768_768 less_2p20 trunc_2p20 gelu_seg3_2p17 \
            softmax_clip_960x180 ln_128_768 --private --lsb | keep
    fi
done
echo "peers: results are in $results" >&2
python3 scripts/bench_report.py "$results"
