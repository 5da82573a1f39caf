"""ε of each node against each other, as a map of squares, where what one node sees of another has a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.results.report.figures import Figure, Trace
from gossamer.results.report.runs import Run

MOST_CELLS = 150  # a side: of more nodes several share a cell, which shows the worst of them
_STEPS = [[0.0, "#f7fbff"], [0.35, "#9ecae1"], [0.7, "#3182bd"], [1.0, "#08306b"]]  # readable in grey, too


def by_pair(runs: Sequence[Run]) -> list[Figure]:
    """The map of every run whose certificate has one."""
    figures = []
    for run in runs:
        c = run.certificate or {}
        pairs = (c.get("network") or {}).get("by_pair")
        if not pairs:
            continue
        matrix = np.array([[math.nan if e is None else float(e) for e in row] for row in pairs])
        links = {(int(i), int(j)) for arcs in run.topology.get("edges", []) for i, j in arcs}
        terms = f"δ = {c['delta']:g}, {c['adjacency']}, {c['unit']}"
        title = "ε of one node against another" + (f": {run.label}" if len(runs) > 1 else "")
        figures.append(heat_map(matrix, links, terms, title))
    return figures


def heat_map(
    matrix: NDArray[np.float64],
    links: Iterable[tuple[int, int]],
    terms: str,
    title: str = "ε of one node against another",
) -> Figure:
    """`matrix[v, u]`: ε of u's records against what node v sees, NaN where v is u.

    `links`: (sender, receiver) of all rounds, marked by dots; `terms`: what else an ε needs, in words.
    """
    n = len(matrix)
    side = math.ceil(n / MOST_CELLS)
    cells = _worst_of_blocks(matrix, side)
    names = [
        str(k * side) if side == 1 else f"{k * side}–{min((k + 1) * side, n) - 1}" for k in range(len(cells))
    ]
    shown = [[None if math.isnan(e) else float(f"{e:.4g}") for e in row] for row in cells]
    data: list[Trace] = [
        {
            "type": "heatmap", "z": shown, "x": names, "y": names, "colorscale": _STEPS, "hoverongaps": False,
            "colorbar": {"title": {"text": "ε"}, "thickness": 12, "outlinewidth": 0},
            "hovertemplate": "records of node %{x}<br>against node %{y}<br>ε = %{z:.3g}<extra></extra>",
        }
    ]  # fmt: skip
    if side == 1:
        pairs = sorted({(sender, receiver) for sender, receiver in links if sender != receiver})
        data.append(
            {
                "type": "scatter", "mode": "markers", "x": [str(u) for u, _ in pairs], "y": [str(v) for _, v in pairs],
                "marker": {"size": max(2, min(7, 240 // n)), "color": "#e69f00"},
                "hoverinfo": "skip", "showlegend": False,
            }
        )  # fmt: skip
    known = matrix[~np.isnan(matrix)]
    worst = np.unravel_index(int(np.nanargmax(matrix)), matrix.shape) if known.size else (0, 0)
    note = f"Each column is the node whose records are protected, each row the node that looks. {terms}."
    if known.size:
        note += (
            f" Worst pair: node {worst[1]}'s records against node {worst[0]}, ε = {known.max():.3g}; "
            f"median {np.median(known):.3g}."
        )
    note += (
        " Dots: it hears from that node directly."
        if side == 1
        else f" A cell is the worst of {side} × {side} nodes."
    )
    axis: dict[str, Any] = {"type": "category", "automargin": True, "fixedrange": True, "showgrid": False}
    layout = {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "hovermode": "closest", "dragmode": False,
        "xaxis": {**axis, "title": {"text": "records of node", "standoff": 8}},
        "yaxis": {**axis, "title": {"text": "seen by node", "standoff": 8}, "autorange": "reversed"},
    }  # fmt: skip
    return Figure(title, note, data, layout)


def _worst_of_blocks(matrix: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    n = len(matrix)
    found = np.full((math.ceil(n / side),) * 2, np.nan)
    for i in range(len(found)):
        for j in range(len(found)):
            block = matrix[i * side : (i + 1) * side, j * side : (j + 1) * side]
            if not np.isnan(block).all():
                found[i, j] = np.nanmax(block)
    return found
