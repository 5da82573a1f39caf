"""The report's figure about who looks on: ε over the number of colluding nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gossamer.results.report.figures import Figure, Trace, axes, colour, line_of
from gossamer.results.report.runs import Run
from gossamer.results.words import shares_noise


def by_colluders(runs: Sequence[Run]) -> list[Figure]:
    """ε(q) of the runs whose nodes share noise; nothing where none does."""
    data: list[Trace] = []
    terms, values = set(), []
    for i, run in enumerate(runs):
        c = run.certificate
        if c is None or not shares_noise(c):
            continue
        points = [
            (p["colluders"], p["epsilon"]) for p in c["epsilon_by_colluders"] if p["epsilon"] is not None
        ]
        planned = [row["colluders"] for row in c["epsilon_by_observer"] if row["planned"]]
        marks = [(q, e) for q, e in points if q in planned]
        hover = "ε %{y:.3g} for %{x} colluding nodes"
        data.append(line_of(i, run, [q for q, _ in points], [e for _, e in points], hovertemplate=hover))
        data.append(
            line_of(
                i, run, [q for q, _ in marks], [e for _, e in marks], mode="markers+text",
                text=[f"planned, ε = {e:.3g}" for _, e in marks], textposition="bottom right", hoverinfo="skip",
                marker={"size": 13, "color": "#fff", "line": {"color": colour(i), "width": 3}},
            )
        )  # fmt: skip
        terms.add(f"δ = {c['delta']:g}, {c['adjacency']}, {c['unit']}")
        values += [e for _, e in points if e > 0]
    if not values:
        return []
    layout = axes("ε")
    layout["xaxis"] |= {"title": {"text": "nodes that pool what they know", "standoff": 8}, "tickformat": "d"}
    if max(values) > 5 * min(values):
        layout["yaxis"] |= {"type": "log", "tickvals": ticks(min(values), max(values)), "tickformat": ".3~g"}
        layout["yaxis"]["range"] = [math.log10(min(values)) - 0.12, math.log10(max(values)) + 0.12]
    else:
        layout["yaxis"] |= {"range": [0, 1.15 * max(values)]}
    layout["hovermode"] = "closest"
    note = (
        "Worst node, against who sees all messages and the final models and knows all that so many nodes know. "
        f"Circle: as planned. {'; '.join(sorted(terms))}."
    )
    return [Figure("ε by colluding nodes", note, data, layout)]


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten that has one of them in sight."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [m * 10.0**p for p in powers for m in (1, 2, 5) if low / 1.2 <= m * 10.0**p <= high * 1.3]
