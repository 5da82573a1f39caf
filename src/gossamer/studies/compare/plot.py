"""plot.html: one file with everything in it, no address of another machine is ever asked.

A figure is the plain data that plotly's script reads, so nothing here needs plotly but the last step.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.results.headline import in_per_cent, unit
from gossamer.results.rundir import finite, write_atomically
from gossamer.studies.compare.table import Spread, Table, one_relation

# Okabe and Ito's colours, which the colour-blind can tell apart, without the yellow that white swallows.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_GRID = "#e8e8e8"


@dataclass(frozen=True)
class Page:
    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    table: Table
    remarks: tuple[str, ...] = ()


def epsilon_page(figures: Sequence[dict[str, Any]], labels: Sequence[str], table: Table) -> Page:
    """Accuracy against proven ε, one curve per method; what has no noise is a level line."""
    scale, unit = _unit(figures)
    curves: dict[str, list[dict[str, Any]]] = {}
    for label, figure in zip(labels, figures, strict=True):
        curves.setdefault(label, []).append(figure)
    placed = [x for x, _, _ in _placed(figures)]
    data: list[dict[str, Any]] = []
    missing: list[str] = []
    for i, (label, points) in enumerate(curves.items()):
        style: dict[str, Any] = {"color": _COLOURS[i % len(_COLOURS)], "width": 2}
        known = sorted(_placed(points))
        if not known:
            level = next((_quality(f)[0] for f in points if _quality(f)[0] is not None), None)
            if level is None or points[0]["baseline"] != "non-private":
                missing.append(label)
                continue
            ends = [min(placed, default=1), max(placed, default=1)]
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"{label} (no noise)", "x": ends,
                    "y": [scale * level] * 2, "line": {**style, "dash": "dash"},
                }
            )  # fmt: skip
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label,
                "x": [x for x, _, _ in known],
                "y": [scale * y for _, y, _ in known],
                "error_y": {
                    "type": "data",
                    "array": [scale * s for _, _, s in known],
                    "thickness": 1.5,
                },
                "line": {**style, "dash": _DASHES[i // len(_COLOURS) % len(_DASHES)]},
                "marker": {"size": 8, "symbol": _SYMBOLS[i % len(_SYMBOLS)]},
            }
        )
    relation = (
        f"δ = {figures[0]['delta']:g}, {figures[0]['adjacency']}" if one_relation(figures) else "see table"
    )
    wide = bool(placed) and max(placed) > 4 * min(placed)
    axis: dict[str, Any] = {"title": {"text": f"proven ε ({relation})"}, "type": "log" if wide else "linear"}
    if 0 < len(ticks := _apart(placed)) <= 8:
        axis |= {"tickvals": ticks, "ticktext": [f"{tick:.3g}" for tick in ticks]}
    layout = _layout(axis, {"title": {"text": unit}})
    remarks = [f"Not in the plot, since no ε is proven: {label}." for label in missing]
    return Page(f"{unit} against proven ε", data, layout, table, tuple(remarks))


def curves_page(
    curves: Sequence[list[tuple[int, Spread]]],
    figures: Sequence[dict[str, Any]],
    labels: Sequence[str],
    table: Table,
) -> Page:
    """The metric over rounds, one curve per row, a band of one standard deviation around it."""
    scale, unit = _unit(figures)
    data: list[dict[str, Any]] = []
    for i, (label, points) in enumerate(zip(labels, curves, strict=True)):
        known = [(at, scale * mean, scale * (std or 0)) for at, (mean, std) in points if mean is not None]
        if not known:
            continue
        colour, x = _COLOURS[i % len(_COLOURS)], [at for at, _, _ in known]
        if any(std for _, _, std in known):
            data.append(
                {
                    "type": "scatter", "mode": "lines", "x": [*x, *reversed(x)],
                    "y": [*(m + s for _, m, s in known), *(m - s for _, m, s in reversed(known))],
                    "fill": "toself", "fillcolor": f"{colour}2e", "line": {"width": 0},
                    "hoverinfo": "skip", "showlegend": False, "legendgroup": str(i),
                }
            )  # fmt: skip
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label, "x": x, "y": [m for _, m, _ in known],
                "line": {"color": colour, "width": 2, "dash": _DASHES[i // len(_COLOURS) % len(_DASHES)]},
                "marker": {"size": 6, "symbol": _SYMBOLS[i % len(_SYMBOLS)]}, "legendgroup": str(i),
            }
        )  # fmt: skip
    layout = _layout({"title": {"text": "round"}, "rangemode": "tozero"}, {"title": {"text": unit}})
    return Page(f"{unit} over rounds", data, layout, table)


def write_page(path: Path, page: Page) -> bool:
    """False where plotly, whose script goes into the file, is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return False
    write_atomically(path, _html(page, get_plotlyjs()).encode())
    return True


def _unit(figures: Sequence[dict[str, Any]]) -> tuple[float, str]:
    metric = next((f["metric"] for f in figures if f["metric"]), "accuracy")
    return (100.0 if in_per_cent(metric) else 1.0), unit(metric)


def _quality(figure: dict[str, Any]) -> Spread:
    metric = figure["metric"]
    return (figure[f"{metric}_mean"], figure[f"{metric}_std"]) if metric else (None, None)


def _placed(figures: Sequence[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """(proven ε, mean, deviation) of those that have them."""
    found = [(f["epsilon_proven"], *_quality(f)) for f in figures]
    return [(x, mean, std or 0.0) for x, mean, std in found if x and mean is not None]


def _apart(values: Sequence[float]) -> list[float]:
    """Places for ticks: the values themselves, but none that would print over its neighbour."""
    ticks: list[float] = []
    for value in sorted(values):
        if not ticks or value > 1.15 * ticks[-1]:
            ticks.append(value)
    return ticks


def _layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    axis = {
        "gridcolor": _GRID,
        "zeroline": False,
        "linecolor": "#999",
        "ticks": "outside",
        "automargin": True,
    }
    return {
        "font": {"family": "system-ui, sans-serif", "size": 14, "color": "#222"},
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "margin": {"l": 60, "r": 16, "t": 36, "b": 60},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.22, "x": 0},
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
    }


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;margin:0 auto;max-width:62rem;padding:1rem}
h1{font-size:1.3rem;margin:.2rem 0 .6rem}
#plot{height:min(70vh,34rem)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:left;white-space:nowrap;border-bottom:1px solid #e8e8e8}
th{border-bottom:2px solid #999}
p{margin:.4rem 0;font-size:.85rem;color:#555}
"""


def _html(page: Page, script: str) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    title = page.title[:1].upper() + page.title[1:]  # `capitalize` would write Rmse
    # "</" would end the script element early.
    figure = json.dumps(finite([page.data, page.layout]), ensure_ascii=False).replace("</", "<\\/")
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in (*page.remarks, *page.table.caption))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(page.title)}</title><style>{_STYLE}</style><script>{script}</script></head><body>"
        f'<h1>{html.escape(title)}</h1><div id="plot"></div><div class="scroll"><table><thead>'
        f"{row(page.table.header, 'th')}</thead><tbody>{''.join(row(r, 'td') for r in page.table.rows)}</tbody></table>"
        f"</div>{notes}<script>const [data, layout] = {figure};"
        'Plotly.newPlot("plot", data, layout, {responsive: true, displaylogo: false, plotlyServerURL: "", '
        'modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]});</script></body></html>\n'
    )
