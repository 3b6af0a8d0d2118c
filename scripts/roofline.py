"""A table, and the plot of docs/roofline.md, from rows of `hushed-bench roofline --json`.

    python3 scripts/roofline.py rows.jsonl docs/roofline.svg        # the table goes to standard output
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 460, 70, 50
X, Y = (1 / 32, 32), (1 / 8, 64)  # products a byte; 10^9 products a second
COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#ff8ab7", "#97bbf5", "#9498a0", "#222222"]


def at(x, y):
    def along(v, ends):
        low, high = (math.log2(e) for e in ends)
        return (math.log2(min(max(v, ends[0]), ends[1])) - low) / (high - low)

    return LEFT + along(x, X) * (WIDTH - LEFT - 190), HEIGHT - BOTTOM - along(y, Y) * (HEIGHT - BOTTOM - 20)


def plot(peak, rows):
    read, lazy = peak["read_bytes_per_second"] / 1e9, peak["lazy_products_per_second"] / 1e9
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for axis, (low, high) in (("x", X), ("y", Y)):
        for power in range(round(math.log2(low)), round(math.log2(high)) + 1):
            value = 2.0 ** power
            (x0, y0), (x1, y1) = (at(value, Y[0]), at(value, Y[1])) if axis == "x" else (at(X[0], value), at(X[1], value))
            out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="#eee"/>')
            label = f"{value:g}" if power >= 0 else f"1/{2 ** -power}"
            tx, ty, anchor = (x0, y0 + 16, "middle") if axis == "x" else (x0 - 6, y0 + 4, "end")
            out.append(f'<text x="{tx:.1f}" y="{ty:.1f}" text-anchor="{anchor}">{label}</text>')
    ridge = lazy / read
    points = [at(X[0], X[0] * read), at(ridge, lazy), at(X[1], lazy)]
    out.append('<polyline fill="none" stroke="black" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
    names = list(dict.fromkeys(row["name"] for row in rows))
    for name, colour in zip(names, COLOURS):
        here = [row for row in rows if row["name"] == name]
        path = [at(row["intensity"], row["products_per_second"] / 1e9) for row in here]
        out.append(f'<polyline fill="none" stroke="{colour}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in path) + '"/>')
        for (x, y), row in zip(path, here):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{name}, level {row["level"]}</title></circle>')
        y = 30 + 20 * names.index(name)
        out.append(f'<circle cx="{WIDTH - 170}" cy="{y}" r="5" fill="{colour}"/><text x="{WIDTH - 158}" y="{y + 4}">{name.removeprefix("roofline.")}</text>')
    out.append(f'<text x="{(WIDTH - 120) / 2}" y="{HEIGHT - 12}" text-anchor="middle">modular products a byte</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">10⁹ modular products a second</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8") if line.strip()]
    rows = [row for row in rows if row["name"].startswith("roofline.")]
    peak = next(row for row in rows if row["name"] == "roofline.peak")
    rows = [row for row in rows if row is not peak]
    with open(sys.argv[2], "w", encoding="utf-8") as svg:
        svg.write(plot(peak, rows))
    read, lazy = peak["read_bytes_per_second"], peak["lazy_products_per_second"]
    print(f"Peaks, {peak['threads']} thread(s): {read / 1e9:.1f} GB/s read, {peak['products_per_second'] / 1e9:.1f} G products/s, "
          f"{lazy / 1e9:.1f} G where a sum of eight is reduced once; one transform in isolation takes "
          f"{peak['transform_seconds'] * 1e6:.0f} µs.\n")
    print("| primitive | level | ms | products | MB | products per byte | G products/s | GB/s | of the roof | transforms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        roof = min(lazy, row["intensity"] * read)
        print(f"| {row['name'].removeprefix('roofline.')} | {row['level']} | {row['seconds'] * 1e3:.2f} | {row['products'] / 1e6:.1f} M "
              f"| {row['bytes_moved'] / 1e6:.1f} | {row['intensity']:.2f} | {row['products_per_second'] / 1e9:.2f} "
              f"| {row['bytes_per_second'] / 1e9:.1f} | {row['products_per_second'] / roof:.0%} "
              f"| {row['transform_seconds'] / row['seconds']:.0%} |")


main()
