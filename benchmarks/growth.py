"""How does a private step grow with nodes, parameters, lots and neighbours? Drawn into docs/figures.

python benchmarks/growth.py             print
python benchmarks/growth.py --write     and draw docs/figures/growth-*.svg
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import engine
from torch import nn

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
STEPS = 9
Point = tuple[float, float]


def seconds(net: str, nodes: int, lot: int, neighbours: int = 2) -> float:
    problem = engine.Problem(net, nodes, lot)
    problem.plan = engine.MixPlan(engine.band(nodes, neighbours))
    timed = engine.Timed(problem, engine.ours(problem), private=True)
    for _ in range(STEPS + 2):
        timed.step()
    del timed.parts[:2]
    return timed.total()


def of_width(width: int) -> float:
    """An MLP 784-width-10, so that d grows and nothing else."""
    name = f"MLP 784-{width}-10"
    engine.NETS[name] = (
        engine.IMAGE,
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10)),
    )
    return seconds(name, 20, 16)


SWEEPS: dict[str, tuple[str, list[int], Callable[[int], float], Callable[[int], float]]] = {
    "n": (
        "nodes n (softmax 784-10, lot 16)",
        [5, 20, 80, 320, 1280],
        lambda n: seconds("softmax 784-10", n, 16),
        float,
    ),
    "d": (
        "parameters d of a node (MLP 784-h-10, n = 20, lot 16)",
        [8, 32, 128, 512],
        of_width,
        lambda h: 795.0 * h + 10,
    ),
    "lot": (
        "lot (MLP 784-128-10, n = 20)",
        [1, 4, 16, 64, 256, 1024],
        lambda lot: seconds("MLP 784-128-10", 20, lot),
        float,
    ),
    "K": (
        "neighbours K (MLP 784-128-10, n = 64, lot 1)",
        [2, 4, 8, 16, 32, 64],
        lambda k: seconds("MLP 784-128-10", 64, 1, k),
        float,
    ),
}


def draw(name: str, label: str, points: list[Point]) -> None:
    """Both axes logarithmic, a decade a line, linear growth dotted through the last point."""
    width, height, left, top, bottom = 460, 300, 58, 14, 46
    logs = [(math.log10(x), math.log10(y)) for x, y in points]
    low_x, high_x = logs[0][0] - 0.1, logs[-1][0] + 0.1
    low_y, high_y = (
        math.floor(min(y for _, y in logs) - 0.05),
        math.ceil(max(y for _, y in logs) + 0.05),
    )

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (x - low_x) / (high_x - low_x) * (width - left - 14)
        return round(across, 1), round(top + (high_y - y) / (high_y - low_y) * (height - top - bottom), 1)

    def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'

    parts = []
    for decade in range(low_y, high_y + 1):
        x, y = place(low_x, decade)
        parts.append(f'<path d="M{x} {y}H{width - 14}" stroke="#e3e3e3"/>')
        parts.append(text(x - 6, y + 4, f"{10.0**decade:g}", "end"))
    floor = height - bottom
    parts += [text(place(x, 0)[0], floor + 16, f"{10**x:,.0f}") for x, _ in logs]
    last_x, last_y = logs[-1]
    shift = max(low_x, last_x - (last_y - low_y))
    (x0, y0), (x1, y1) = place(shift, last_y - (last_x - shift)), place(last_x, last_y)
    parts.append(f'<path d="M{x0} {y0}L{x1} {y1}" stroke="#888" stroke-dasharray="2 4"/>')
    places = [place(x, y) for x, y in logs]
    line = "L".join(f"{x} {y}" for x, y in places)
    parts.append(f'<path d="M{line}" stroke="#1f6f8b" stroke-width="2" fill="none"/>')
    parts += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="#1f6f8b"/>' for x, y in places]
    parts += [text((left + width) / 2, height - 8, label), text(left + 6, top + 10, "ms of a step", "start")]
    body = "\n".join(parts)
    (FIGURES / f"growth-{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#222">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw docs/figures/growth-*.svg")
    options = parser.parse_args()
    lines = ["| in | values | ms of a step |", "|---|---|---|"]
    for name, (label, values, measure, of) in SWEEPS.items():
        points = [(of(value), 1e3 * measure(value)) for value in values]
        shown = [", ".join(f"{x:,.0f}" for x, _ in points), ", ".join(f"{y:.2f}" for _, y in points)]
        lines.append(f"| {label} | {shown[0]} | {shown[1]} |")
        print(lines[-1], flush=True)
        if options.write:
            draw(name, label, points)
    if options.write:
        figures = [f"![A step's time over {label}](figures/growth-{name}.svg)" for name, (label, *_) in SWEEPS.items()]
        engine.write("growth", [*lines, "", *figures])


if __name__ == "__main__":
    main()
