"""A table, and the plot of docs/one-text.md, from `hushed plan … --goal latency --json`: seconds by texts per run.

    hushed plan MODEL --protocol fhe --rows 128 --calibration FILE --goal latency --json >plan.json
    python3 scripts/curve.py plan.json docs/one-text.svg        # the table goes to standard output
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT = 760, 380, 70, 50, 130
TICKS = [1, 2, 5]
COLOURS = {"seconds": "#4269d0", "seconds_per_text": "#ff725c"}
NAMES = {"seconds": "a run", "seconds_per_text": "per text"}


def ends(values):
    """The powers of ten around some values."""
    return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))


def plot(points):
    xs = (1, max(p["texts"] for p in points))
    ys = ends([p[name] for p in points for name in COLOURS])

    def along(value, low, high):
        return math.log(value / low) / math.log(high / low)

    def at(x, y):
        return LEFT + along(x, *xs) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - along(y, *ys) * (HEIGHT - BOTTOM - 20)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    decades = range(round(math.log10(ys[0])), round(math.log10(ys[1])) + 1)
    for value in [tick * 10.0 ** d for d in decades for tick in TICKS if tick * 10.0 ** d <= ys[1]]:
        (x0, y0), (x1, _) = at(xs[0], value), at(xs[1], value)
        out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y0:.1f}" stroke="#eee"/>')
        out.append(f'<text x="{x0 - 6:.1f}" y="{y0 + 4:.1f}" text-anchor="end">{value:,g}</text>')
    for texts in [p["texts"] for p in points]:
        (x0, y0), (_, y1) = at(texts, ys[0]), at(texts, ys[1])
        out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x0:.1f}" y2="{y1:.1f}" stroke="#eee"/>')
        out.append(f'<text x="{x0:.1f}" y="{y0 + 16:.1f}" text-anchor="middle">{texts}</text>')
    for name, colour in COLOURS.items():
        path = [at(p["texts"], p[name]) for p in points]
        out.append(f'<polyline fill="none" stroke="{colour}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in path) + '"/>')
        for (x, y), p in zip(path, points):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{p["texts"]} texts: {p[name]:.0f} s</title></circle>')
        x, y = path[-1]
        out.append(f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{colour}">{NAMES[name]}</text>')
    out.append(f'<text x="{(WIDTH + LEFT - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">texts per run</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">seconds</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    with open(sys.argv[1], encoding="utf-8") as plan:
        points = [row["curve"] for row in map(json.loads, plan) if "curve" in row]
    with open(sys.argv[2], "w", encoding="utf-8") as svg:
        svg.write(plot(points))
    print("| texts | layout | seconds | per text | keys | memory |")
    print("|---|---|---|---|---|---|")
    for p in points:
        layout = "a batch" if p["columns"] == 1 else f"packed rows, {p['columns']} pairs of columns per vector"
        print(f"| {p['texts']} | {layout} | {p['seconds']:,.0f} | {p['seconds_per_text']:,.1f} "
              f"| {p['key_bytes'] / 2**30:.1f} GiB | {p['memory'] / 2**30:.1f} GiB |")


main()
