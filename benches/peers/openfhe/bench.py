"""OpenFHE (wheel from PyPI) CKKS beside ours: one JSON object a line, fields as in docs/benchmarks.md.

    python bench.py ops | boot [repetitions]

The wheel imports on Python 3.10 alone. Threads are OMP_NUM_THREADS.
"""
import json
import math
import os
import statistics
import sys
import time

import numpy as np
import openfhe as o

PEER = "openfhe 1.6.1"

# Rotations of one ciphertext, by 1, 2, ….
HOISTED = 32


def peak():
    """Peak resident memory in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    return 0


def emit(**row):
    print(json.dumps({"peer": PEER, "threads": int(os.environ.get("OMP_NUM_THREADS", "0")), "peak_rss": peak(), **row}), flush=True)


def measure(f):
    """Median seconds of f, and the number of runs."""
    f()
    start = time.perf_counter()
    f()
    one = time.perf_counter() - start
    inner = max(1, min(100, int(0.02 / one)))
    runs = int(max(5, min(15, 1.0 / (one * inner))))
    samples = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(inner):
            f()
        samples.append((time.perf_counter() - start) / inner)
    return statistics.median(samples), runs


def context(depth, scale, first, digits, technique, secret):
    p = o.CCParamsCKKSRNS()
    p.SetSecretKeyDist(secret)
    p.SetSecurityLevel(o.SecurityLevel.HEStd_128_classic)
    p.SetRingDim(1 << 16)
    p.SetScalingModSize(scale)
    p.SetFirstModSize(first)
    p.SetScalingTechnique(technique)
    p.SetNumLargeDigits(digits)
    p.SetKeySwitchTechnique(o.KeySwitchTechnique.HYBRID)
    p.SetMultiplicativeDepth(depth)
    cc = o.GenCryptoContext(p)
    feature = o.PKESchemeFeature
    for f in (feature.PKE, feature.KEYSWITCH, feature.LEVELEDSHE, feature.ADVANCEDSHE, feature.FHE):
        cc.Enable(f)
    return cc


def ops(levels):
    # 60 + 29 x 46 bits in five digits: as wide as its own bound allows with a dense ternary secret.
    depth = 29
    cc = context(depth, 46, 60, 5, o.ScalingTechnique.FIXEDMANUAL, o.SecretKeyDist.UNIFORM_TERNARY)
    params = {"log_n": 16, "log_q": 60 + 46 * depth, "secret": "ternary"}
    keys = cc.KeyGen()
    cc.EvalMultKeyGen(keys.secretKey)
    cc.EvalRotateKeyGen(keys.secretKey, list(range(1, HOISTED + 1)))
    n = cc.GetRingDimension() // 2
    xs = np.random.uniform(-1, 1, n)

    def row(name, level, f, each=1):
        seconds, runs = measure(f)
        emit(name=name, params=params, level=level, seconds=seconds / each, runs=runs)

    for level in levels:
        pt = cc.MakeCKKSPackedPlaintext(xs, 1, depth - level, None, n)
        a, b = cc.Encrypt(keys.publicKey, pt), cc.Encrypt(keys.publicKey, pt)
        row("ckks.add", level, lambda: cc.EvalAddInPlace(a, b))
        a = cc.Encrypt(keys.publicKey, pt)
        row("ckks.mul_plain", level, lambda: cc.EvalMult(a, pt))
        product = cc.EvalMult(a, pt)
        row("ckks.rescale", level, lambda: cc.Rescale(product))
        row("ckks.mul", level, lambda: cc.EvalMult(a, b))
        row("ckks.rotate", level, lambda: cc.EvalRotate(a, 1))
        order = cc.GetCyclotomicOrder()

        def hoisted():
            digits = cc.EvalFastRotationPrecompute(a)
            for r in range(1, HOISTED + 1):
                cc.EvalFastRotation(a, r, order, digits)

        row("ckks.rotate_hoisted", level, hoisted, HOISTED)


def boot(repetitions):
    secret = o.SecretKeyDist.SPARSE_ENCAPSULATED
    budget, after, scale, first = [3, 3], 8, 50, 55
    depth = after + o.CryptoContext.GetBootstrapDepth(budget, secret)
    cc = context(depth, scale, first, 3, o.ScalingTechnique.FLEXIBLEAUTO, secret)
    n = cc.GetRingDimension() // 2
    start = time.perf_counter()
    cc.EvalBootstrapSetup(budget, [0, 0], n)
    keys = cc.KeyGen()
    cc.EvalMultKeyGen(keys.secretKey)
    cc.EvalBootstrapKeyGen(keys.secretKey, n)
    setup = time.perf_counter() - start
    xs = np.random.uniform(-1, 1, n)
    ct = cc.Encrypt(keys.publicKey, cc.MakeCKKSPackedPlaintext(xs, 1, depth - 1, None, n))
    samples, out = [], None
    for run in range(repetitions + 1):
        start = time.perf_counter()
        out = cc.EvalBootstrap(ct)
        if run:
            samples.append(time.perf_counter() - start)
    opened = cc.Decrypt(out, keys.secretKey)
    opened.SetLength(n)
    bits = -np.log2(np.maximum(np.abs(np.array(opened.GetRealPackedValue()) - xs), 1e-30))
    left = depth - out.GetLevel() - (out.GetNoiseScaleDeg() - 1)
    emit(name="bootstrap", params={"set": f"sparse-encapsulated, scale 2^{scale}", "log_n": 16, "slots": n, "budget": budget},
         seconds=statistics.median(samples), runs=repetitions, setup_seconds=setup, level=left, modulus_bits_left=left * scale,
         precision_bits_min=float(bits.min()), precision_bits_mean=float(bits.mean()))


if sys.argv[1:2] == ["ops"]:
    ops([2, 6, 13, 29])
elif sys.argv[1:2] == ["boot"]:
    boot(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
else:
    sys.exit(__doc__)
