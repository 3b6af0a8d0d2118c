"""TenSEAL (wheel from PyPI, Microsoft SEAL inside) beside ours: the MLP for digits of data/networks on one encrypted
image, one JSON object, fields as in docs/benchmarks.md. From the repository's folder:

    python benches/peers/tenseal/bench.py [images]
"""
import json
import pathlib
import statistics
import sys
import time

import numpy as np
import tenseal as ts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import digits

PEER = f"tenseal {ts.__version__}"
# A level for each map and each square, between a first and a special prime.
LOG_N, BITS, SCALE = 14, [60, 40, 40, 40, 40, 40, 60], 40


def main(count):
    context = ts.context(ts.SCHEME_TYPE.CKKS, 1 << LOG_N, coeff_mod_bit_sizes=BITS, n_threads=1)
    context.global_scale = 2.0**SCALE
    start = time.perf_counter()
    context.generate_galois_keys()
    keys = time.perf_counter() - start
    # A bias is added as a ciphertext, which holds it in all slots: a plain one is added to the first ones alone, and the
    # next map reads others.
    layers = [(weight.T.tolist(), ts.ckks_vector(context, bias.tolist())) for weight, bias in digits.layers()]
    seconds, whole, error = [], [], 0.0
    for image in digits.images(count + 1):
        begun = time.perf_counter()
        x = ts.ckks_vector(context, image.tolist())
        start = time.perf_counter()
        for number, (weight, bias) in enumerate(layers):
            if number > 0:
                x = x.square()
            x = x.mm(weight) + bias
        seconds.append(time.perf_counter() - start)
        found = np.array(x.decrypt())
        whole.append(time.perf_counter() - begun)
        error = max(error, np.abs(found - digits.clear(image)).max())
    # The first is a warm-up.
    print(json.dumps({
        "peer": PEER, "name": "fhe-network", "network": "mlp", "threads": 1,
        "params": {"log_n": LOG_N, "log_q": sum(BITS[:-1]), "log_p": BITS[-1], "scale": SCALE},
        "seconds": statistics.median(seconds[1:]), "seconds_with_the_client": statistics.median(whole[1:]),
        "runs": count, "seconds_to_make_keys": keys, "error": error,
    }))


main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
