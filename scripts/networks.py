"""Measures MiniLM and a token of GPT-2 over several networks, and writes rows for docs/measured/twopc.jsonl.

    python3 scripts/networks.py target/dist/hushed-bench [out/networks.jsonl] [--whole]

The program imitates the networks. What precedes the measured run (the first run, a prompt, products made ahead) is not
over them. About 20 minutes on two cores; --whole measures every case over every network, an hour and more.
"""
import json
import subprocess
import sys

ROUND_TRIPS = (10, 40, 80)
BANDWIDTHS = (20, 50, 200)
EVERY = [(rtt, rate) for rtt in ROUND_TRIPS for rate in BANDWIDTHS]
SOME = [(10, 200), (40, 50), (80, 20)]

# Name, suite, what the parameters contain, networks, and those that the forms of a LAN run over too
CASES = [
    ("MiniLM, 16 tokens", "model", '"model":"minilm","tokens":16,', EVERY, SOME),
    ("MiniLM, 128 tokens", "model", '"model":"minilm","tokens":128,', SOME, []),
    ("GPT-2, a later token, ahead", "generate", '"prompt":128,"token":"later, products made ahead"', SOME, SOME),
]


def measured(program, suite, only, network, forms):
    """The row of one case over one network."""
    rtt, rate = network
    command = [program, suite, "--only", only, "--runs", "1", "--json"]
    command += ["--rtt", f"{rtt}ms", "--bandwidth", f"{rate}mbit"]
    command += ["--forms", forms] if forms else []
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in found]
    if len(rows) != 1:
        raise SystemExit(f"networks: {suite} --only {only!r} has {len(rows)} cases, and one was expected")
    return rows[0]


def figures(what, row, usual):
    """The rows of the page's table."""
    machine = row["machine"]
    same = {
        "table": "networks",
        "what": what,
        "machine": f"{machine['processor']}, {machine['cores']} cores, one a party",
        "kernels": row["kernel"],
        "parameters": "random weights, one run, imitated network",
        "commit": row["commit"],
        "kind": "measured",
    }
    yield {**same, "figure": "time", "value": round(row["seconds"], 2), "unit": "s"}
    if usual:
        yield {**same, "figure": "time, forms of lan", "value": round(usual["seconds"], 2), "unit": "s"}
    yield {**same, "figure": "up", "value": round(row["bytes_up"] / 1e6, 2), "unit": "MB"}
    yield {**same, "figure": "down", "value": round(row["bytes_down"] / 1e6, 2), "unit": "MB"}
    yield {**same, "figure": "rounds", "value": row["rounds"], "unit": ""}
    if usual:
        yield {**same, "figure": "rounds, forms of lan", "value": usual["rounds"], "unit": ""}


def main():
    names = [argument for argument in sys.argv[1:] if argument != "--whole"]
    if not names:
        raise SystemExit("usage: networks.py target/dist/hushed-bench [out/networks.jsonl] [--whole]")
    program, out = names[0], names[1] if len(names) > 1 else "out/networks.jsonl"
    whole = "--whole" in sys.argv
    with open(out, "w", encoding="utf-8") as file:
        for name, suite, only, networks, compared in CASES:
            for network in EVERY if whole else networks:
                row = measured(program, suite, only, network, None)
                usual = measured(program, suite, only, network, "lan") if whole or network in compared else None
                what = f"{name}; {network[0]} ms, {network[1]} Mbit/s"
                for figure in figures(what, row, usual):
                    file.write(json.dumps(figure, ensure_ascii=False, separators=(",", ":")) + "\n")
                file.flush()
                beside = f", forms of lan {usual['seconds']:.2f} s" if usual else ""
                print(f"{what}: {row['seconds']:.2f} s{beside}", flush=True)


if __name__ == "__main__":
    main()
