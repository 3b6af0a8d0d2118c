"""Tables of docs/benchmarks.md from rows of `hushed bench … --json`.

    python3 scripts/bench_report.py out/bench.jsonl [out/peers.jsonl …]

Rows of one name make one table, with the paper's figure beside those sizes that it reports (BumbleBee, NDSS 2025, Tables II, V
and VII: 25 threads a party there, one core a party here). Megabytes are 10^6 bytes; the paper's are 2^20, and converted.
"""
import json
import sys

MIB, GIB = 1.048576, 1073.741824

# (name, what the row's parameters contain) -> (megabytes, seconds on the LAN)
PAPER = [
    ("olt", {"k": 1, "m": 50257, "n": 768}, 1.38 * MIB, 0.46),
    ("olt", {"k": 128, "m": 768, "n": 768}, 5.02 * MIB, 0.51),
    ("ole", {"count": 1 << 15, "factors": "private"}, 3.61 * MIB, 0.05),
    ("ole", {"count": 1 << 20, "factors": "private"}, 105.93 * MIB, 1.71),
    ("gelu", {"count": 1 << 20}, 0.40 * GIB, 3.95),
    ("softmax", {"rows": 960, "columns": 180}, 0.27 * GIB, 3.03),
    ("model", {"model": "bert-base", "tokens": 128}, 6.40 * GIB, 2.55 * 60),
    ("model", {"model": "bert-large", "tokens": 128}, 16.37 * GIB, 6.19 * 60),
]


def paper(row):
    for name, wanted, megabytes, seconds in PAPER:
        if row["name"] == name and wanted.items() <= row.get("params", {}).items():
            return f"{megabytes:.1f} MB, {seconds:.2f} s"
    return ""


def seconds(value):
    if value is None:
        return ""
    if value < 1e-3:
        return f"{value * 1e6:.1f} µs"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def megabytes(*values):
    return f"{sum(values) / 1e6:.2f}" if None not in values else ""


def both(value, show):
    if isinstance(value, dict):
        return " / ".join(show(value[party]) for party in ("client", "server"))
    return show(value) if value is not None else ""


def accuracy(row):
    if "cosine" in row:
        return f"cosine {row['cosine']:.6f}"
    return f"{row['error']:.1e}" if row.get("error") is not None else ""


def table(name, rows):
    print(f"\n### {name}\n")
    print("| size | net | seconds | processor s, c / s | MB up | MB down | rounds | set-up | peak MB, c / s | error | paper |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        size = ", ".join(f"{k} {v}" for k, v in row.get("params", {}).items()) or row.get("peer", "")
        cells = [
            f"{row['peer']}: {size}" if "peer" in row else size,
            row.get("net", ""),
            seconds(row.get("seconds")),
            both(row.get("cpu_seconds"), lambda s: f"{s:.2f}"),
            megabytes(row.get("bytes_up")),
            megabytes(row.get("bytes_down")),
            str(row.get("rounds", "")),
            seconds(row.get("setup_seconds")),
            both(row.get("peak_rss"), lambda b: f"{b / 1e6:.0f}" if b else ""),
            accuracy(row),
            paper(row),
        ]
        print("| " + " | ".join(cells) + " |")


def operations(row):
    print(f"\n#### Where it goes: {row['params']['model']}, {row['params']['tokens']} tokens, {row.get('net', '')}\n")
    print("| operation | calls | seconds | MB up | MB down | rounds |\n|---|---|---|---|---|---|")
    for op in sorted(row["ops"], key=lambda op: -op["seconds"]):
        up, down = megabytes(op["bytes_up"]), megabytes(op["bytes_down"])
        print(f"| {op['op']} | {op['calls']} | {op['seconds']:.2f} | {up} | {down} | {op['rounds']} |")


def main(paths):
    rows = [json.loads(line) for path in paths for line in open(path, encoding="utf-8") if line.startswith("{")]
    machines = {(row["machine"]["processor"], row["machine"]["cores"], row.get("kernel"), row["commit"]) for row in rows if "machine" in row}
    for processor, cores, kernel, commit in sorted(machines, key=str):
        print(f"{processor}, {cores} cores, kernel {kernel}, commit {commit}")
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        table(name, own)
        for row in own:
            if row.get("ops"):
                operations(row)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
