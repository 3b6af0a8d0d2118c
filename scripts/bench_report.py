"""Tables from rows of `hushed-bench … --json`, with the figures of papers and of peers beside ours.

    python3 scripts/bench_report.py out/bench.jsonl [out/peers.jsonl …]

What we and a peer both did comes first, a line each; out/peers.jsonl has both, measured by turns. Then rows of one name make one table, with the paper's figure beside those sizes that it reports (BumbleBee, NDSS 2025, Tables II, V
and VII: 25 threads a party there, one core a party here). Megabytes are 10^6 bytes; the paper's are 2^20, and converted.
"""
import json
import statistics
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


# Cases of SPU -> our name and parameters
SPU = {
    "mm_128_768_768": ("olt", {"k": 128, "m": 768, "n": 768}),
    "gelu_seg3_2p17": ("gelu", {"count": 1 << 17}),
    "softmax_clip_960x180": ("softmax", {"rows": 960, "columns": 180}),
}
# Parameters that say what is computed; all others say how.
SAME = ["n", "bits", "direction", "dimension", "k", "m", "rows", "columns", "count", "form", "degree", "layout", "inputs", "outputs", "method", "network"]
# The tops of the chains differ by a prime; poulpy has bits in place of levels.
TOP = 28
WIDTHS = {130: 2, 290: 6, 570: 13, 1280: TOP}


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
    if value < 1:
        return f"{value * 1e3:.{0 if value >= 0.1 else 1}f} ms"
    return f"{value:.2f} s"


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


def precision(row):
    if row.get("precision_bits_min") is None:
        return ""
    return f"{row['precision_bits_min']:.1f}, {row['precision_bits_mean']:.1f}"


def gib(value):
    if value is None:
        return ""
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def size(row):
    return ", ".join(f"{k} {v}" for k, v in row.get("params", {}).items())


# Heading, and the cell of a row. A column that no row fills is left out, but for size and seconds.
COLUMNS = [
    ("size", lambda row: ": ".join(filter(None, [row.get("peer"), size(row)]))),
    ("net", lambda row: row.get("net", "")),
    ("seconds", lambda row: seconds(row.get("seconds"))),
    ("level", lambda row: str(row.get("level", ""))),
    ("bits: worst, mean", precision),
    ("keys", lambda row: gib(row.get("key_bytes"))),
    ("processor s, c / s", lambda row: both(row.get("cpu_seconds"), lambda s: f"{s:.2f}")),
    ("MB up", lambda row: megabytes(row.get("bytes_up"))),
    ("MB down", lambda row: megabytes(row.get("bytes_down"))),
    ("rounds", lambda row: "" if row.get("rounds") is None else str(row["rounds"])),
    ("set-up", lambda row: seconds(row.get("setup_seconds"))),
    ("peak MB, c / s", lambda row: both(row.get("peak_rss"), lambda b: f"{b / 1e6:.0f}" if b else "")),
    ("error", accuracy),
    ("paper", paper),
]


def lines(headings, rows):
    print("| " + " | ".join(headings) + " |")
    print("|" + "---|" * len(headings))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


def table(name, rows):
    print(f"\n### {name}\n")
    cells = [[show(row) for _, show in COLUMNS] for row in rows]
    kept = [i for i in range(len(COLUMNS)) if i in (0, 2) or any(row[i] for row in cells)]
    lines([COLUMNS[i][0] for i in kept], [[row[i] for i in kept] for row in cells])


def medians(rows):
    """One row of each program, case, size, level, kernel and number of threads: the median of the rounds."""
    groups = {}
    for row in rows:
        if row.get("seconds") is None:
            continue
        name, params = SPU.get(row["name"], (row["name"], {})) if "peer" in row else (row["name"], {})
        network = {"network": row["network"]} if "network" in row else {}
        row = {**row, "name": name, "params": {**params, **network, **row.get("params", {})}}
        key = [row.get(k) for k in ("peer", "name", "params", "level", "kernel", "threads", "net")]
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(row)
    return [{**group[0], "seconds": statistics.median(row["seconds"] for row in group)} for group in groups.values()]


def level(row):
    found = row.get("level", WIDTHS.get(row["params"].get("modulus_bits")))
    # What a bootstrap leaves is a result, and a single transform has none; Orion does a map at a level of its choice, and
    # all others at the same. Elsewhere it is where the operation was done.
    return None if found is None or row["name"] in ("bootstrap", "ntt", "matvec") else min(found, TOP)


def alike(ours, theirs):
    a, b = ours["params"], theirs["params"]
    same = ours["name"] == theirs["name"] and level(ours) == level(theirs)
    return same and all(a[k] == b[k] for k in SAME if k in a and k in b)


def beside(rows):
    every = medians(rows)
    ours, theirs = ([row for row in every if ("peer" in row) == foreign] for foreign in (False, True))
    pairs = [(row, [other for other in theirs if alike(row, other)]) for row in ours]
    pairs = [(row, others) for row, others in pairs if others]
    if not pairs:
        return
    peers = list(dict.fromkeys(other["peer"] for _, others in pairs for other in others))
    print("\n### Beside peers\n")
    print("Seconds of one thread or party unless said; times ours in brackets. Parameters, and with them security, differ: they are in the tables below.\n")
    out = []
    for row, others in pairs:
        what = [row["name"], size(row), row.get("kernel", "") if row["name"] == "ntt" else ""]
        threads = f"{row['threads']} threads" if row.get("threads", 1) > 1 else ""
        cells = [", ".join(filter(None, what + [threads])), str(row.get("level", "")), seconds(row["seconds"])]
        for peer in peers:
            found = [other for other in others if other["peer"] == peer]
            several = len(found) > 1
            cells.append(" / ".join(
                f"{seconds(other['seconds'])} ({other['seconds'] / row['seconds']:.1f})"
                + (f" {other['params'].get('set', size(other))}" if several else "")
                for other in found))
        out.append(cells)
    lines(["what", "level", "Hushed", *peers], out)


def operations(row):
    print(f"\n#### Where it goes: {row['name']}, {size(row)}, {row.get('net', '')}\n")
    print("| operation | calls | seconds | MB up | MB down | rounds |\n|---|---|---|---|---|---|")
    for op in sorted(row["ops"], key=lambda op: -op["seconds"]):
        up, down = megabytes(op["bytes_up"]), megabytes(op["bytes_down"])
        print(f"| {op['op']} | {op['calls']} | {op['seconds']:.2f} | {up} | {down} | {op['rounds']} |")


def main(paths):
    rows = [json.loads(line) for path in paths for line in open(path, encoding="utf-8") if line.startswith("{")]
    machines = {(row["machine"]["processor"], row["machine"]["cores"], row.get("kernel"), row["commit"]) for row in rows if "machine" in row}
    for processor, cores, kernel, commit in sorted(machines, key=str):
        print(f"{processor}, {cores} cores, kernel {kernel}, commit {commit}")
    beside(rows)
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
