#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quant_svg.py ROWS.tsv OUT.svg - draws the rows of quant.sh: KL, as a logarithm, over the size of the file; lines are what
was measured, crosses what was predicted."""
import math
import sys

W, H, LEFT, BOTTOM, RIGHT, TOP = 760, 460, 64, 44, 190, 16
COLOURS = ["#555555", "#0b62a4", "#d1495b", "#3a7d44", "#8e5ea2", "#c98a00", "#008b8b", "#a0522d"]


def read(path):
    series = {}
    for line in open(path):
        name, _, size, predicted, _, kl, _ = line.rstrip("\n").split("\t")
        series.setdefault(name, []).append((int(size) / 1e6, float(kl), None if predicted == "-" else float(predicted)))
    return {name: sorted(v) for name, v in series.items()}


def draw(series):
    sizes = [p[0] for v in series.values() for p in v]
    losses = [y for v in series.values() for p in v for y in p[1:] if y]
    x0, x1 = min(sizes), max(sizes)
    y0, y1 = math.log10(min(losses)) - .05, math.log10(max(losses)) + .05

    def x(mb):
        return LEFT + (mb - x0) / (x1 - x0 or 1) * (W - LEFT - RIGHT)

    def y(kl):
        return H - BOTTOM - (math.log10(kl) - y0) / (y1 - y0) * (H - BOTTOM - TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H}" font-family="sans-serif" font-size="12">',
           f'<rect width="{W}" height="{H}" fill="white"/>']
    for k in range(math.floor(y0), math.ceil(y1) + 1):
        for m in (1, 2, 5):
            if y0 <= math.log10(m * 10.0 ** k) <= y1:
                at = y(m * 10.0 ** k)
                out.append(f'<path d="M{LEFT} {at:.1f}H{W - RIGHT}" stroke="#dddddd"/>'
                           f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{m * 10.0 ** k:g}</text>')
    step = max(1, round((x1 - x0) / 6))
    for mb in range(math.ceil(x0), math.floor(x1) + 1, step):
        out.append(f'<text x="{x(mb):.1f}" y="{H - BOTTOM + 18}" text-anchor="middle">{mb}</text>')
    out.append(f'<text x="{(LEFT + W - RIGHT) / 2}" y="{H - 8}" text-anchor="middle">size of the file, MB</text>'
               f'<text x="14" y="{H / 2}" transform="rotate(-90 14 {H / 2})" text-anchor="middle">KL, nats per token</text>')
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(p[0]):.1f},{y(p[1]):.1f}" for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for mb, kl, predicted in points:
            out.append(f'<circle cx="{x(mb):.1f}" cy="{y(kl):.1f}" r="3" fill="{colour}"/>')
            if predicted:
                a, b = x(mb), y(predicted)
                out.append(f'<path d="M{a - 4:.1f} {b - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}"/>')
        out.append(f'<path d="M{W - RIGHT + 10} {TOP + 18 * i + 6}h20" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{W - RIGHT + 36}" y="{TOP + 18 * i + 10}">{name}</text>')
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    svg = draw(read(sys.argv[1]))
    with open(sys.argv[2], "w") as f:
        f.write(svg)
