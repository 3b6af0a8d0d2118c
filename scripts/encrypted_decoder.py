"""A batch of private texts through a ternary decoder under encryption, read at all rows: which of four endings is the likeliest.

What `make decoder` shows.

    python3 scripts/encrypted_decoder.py [--max-memory GIB] [--json]

`data/decoder-small`, N = 2^16 at 128 bits: 63 items of four endings, 252 texts of up to 84 tokens, in one run of the server, which takes
half an hour of two cores and the memory that is asked for. Then the likelihoods in the clear beside it. What was done is kept in
out/decoder: started again after a crash or Ctrl-C, it goes on from the last whole layer. Exits with 1 when another ending is chosen than
in the clear, although it leads there by more than twice the largest difference.
"""
import argparse
import json
import shutil

from encrypted_run import shown
from two_processes import ROOT, hushed, run

MODEL = ROOT / "data" / "decoder-small"
CALIBRATION = MODEL / "calibration-fhe.json"
ITEMS = MODEL / "items.jsonl"
CANARY = "a canary sings in the mine"


def chosen(rows):
    """The items of `decrypt` or `clear`, in order."""
    return [row for row in rows if "log_likelihoods" in row]


def of_tokens(private, clear):
    """How far the predictions of all rows are apart."""
    pairs = [(p, c) for p, c in zip(private, clear, strict=True) if "log_probabilities" in p]
    own = [pair for p, c in pairs for pair in zip(p["log_probabilities"], c["log_probabilities"], strict=True)]
    likeliest = [pair for p, c in pairs for pair in zip(p["likeliest"], c["likeliest"], strict=True)]
    same = [(p["log_probability"], c["log_probability"]) for p, c in likeliest if p["id"] == c["id"]]
    largest = lambda pairs: max(abs(a - b) for a, b in pairs)
    return {
        "rows": len(own), "same": len(same), "apart": largest(own), "apart_likeliest": largest(same),
        "perplexity": private[-1]["perplexity"], "perplexity_clear": clear[-1]["perplexity"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-memory", type=int, default=17, help="GiB that the run may take (default 17, least 11)")
    parser.add_argument("--json", action="store_true", help="the comparison as one object besides")
    options = parser.parse_args()
    work = ROOT / "out" / "decoder"
    work.mkdir(parents=True, exist_ok=True)
    plan, public, keys = work / "manifest.json", work / "model.public", work / "keys"
    request, reply, texts = work / "request", work / "reply", work / "texts.txt"
    prompts = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    texts.write_text("".join(f"{item['prompt']}{ending}\n" for item in prompts for ending in item["endings"]), encoding="utf-8")
    took = {}
    if not request.exists():
        # Half of what an earlier start left belongs to another plan.
        shutil.rmtree(keys, ignore_errors=True)
        took["plan"] = shown(
            "plan", MODEL, "--force", "--protocol", "fhe", "--rows", 128, "--texts", 256, "--answer", "rows", "--max-memory", options.max_memory,
            "--calibration", CALIBRATION, "--manifest", plan, "--public-model", public, "--public-embedding", "--canary", CANARY)
        took["keygen"] = shown("keygen", "--manifest", plan, "--out", keys)
        took["encrypt"] = shown(
            "encrypt", "--manifest", plan, "--public", public, "--keys", keys, "--choices", ITEMS, "--out", request)
    if not reply.exists():
        took["run"] = shown(
            "run", MODEL, "--manifest", plan, "--keys", keys / "evaluation.keys", "--request", request, "--out", reply,
            "--calibration", CALIBRATION, "--checkpoint", work / "checkpoints", "--spill", work)
    opened = ("decrypt", "--manifest", plan, "--public", public, "--keys", keys, "--reply", reply)
    private, clear = chosen(hushed(*opened, "--choices", ITEMS)), chosen(hushed("clear", MODEL, "--choices", ITEMS))
    pairs = list(zip(private, clear, strict=True))

    apart = max(abs(a - b) for p, c in pairs for a, b in zip(p["log_likelihoods"], c["log_likelihoods"], strict=True))
    same = sum(p["pick"] == c["pick"] for p, c in pairs)
    lost = [c["margin"] for p, c in pairs if p["pick"] != c["pick"]]
    right = [sum(row["right"] for row in rows) for rows in (private, clear)]
    for item, row in zip(prompts[:3], private):
        print(f"{item['prompt']}…{item['endings'][row['pick']]}")
    print(f"\nthe same ending as in the clear: {same} of {len(pairs)}; right: {right[0]}, in the clear {right[1]}")
    print(f"sums of log probabilities differ by at most {apart:.4f}")
    tokens = of_tokens(hushed(*opened, "--perplexity", texts), hushed("clear", MODEL, "--perplexity", texts))
    print(
        f"{tokens['rows']} rows: the same likeliest token as in the clear at {tokens['same']}; log probabilities of the texts' tokens differ by "
        f"at most {tokens['apart']:.4f}, of the likeliest tokens by {tokens['apart_likeliest']:.4f}; perplexity {tokens['perplexity']:.4f}, in "
        f"the clear {tokens['perplexity_clear']:.4f}")
    print("\n".join(f"{verb:<10} {seconds:10.1f} s" for verb, seconds in took.items()))
    if options.json:
        print(json.dumps({"name": "decoder", "items": len(pairs), "same": same, "right": right, "apart": apart, "tokens": tokens, "seconds": took}))
    return any(margin > 2 * apart for margin in lost)


if __name__ == "__main__":
    run(main)
