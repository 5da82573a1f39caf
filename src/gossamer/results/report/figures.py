"""The report's figures, as plotly's own JSON. A trace's `meta` is its run, so that a run can be hidden everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.results.headline import in_per_cent, no_epsilon_covers, nodes_judged, over_nodes, title
from gossamer.results.report.runs import Run

# Okabe and Ito's colours, told apart by the colour-blind too; then the same again, dashed.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5d5d5d")
_ROUND_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_BUDGET_LINE = {"dash": "dash", "width": 1.5, "color": "#b03030"}
_MOST_LINKS, _MOST_PLACED, _MOST_DRAWN = 4000, 150, 1000

Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    title: str
    note: str
    data: list[Trace]
    layout: dict[str, Any]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def curves(runs: Sequence[Run]) -> list[Figure]:
    """Everything that goes over rounds, and the nodes at the end."""
    figures = []
    for name in sorted({run.quality for run in runs if run.quality}):
        chosen = [(i, run) for i, run in enumerate(runs) if run.quality == name]
        percent, said = in_per_cent(name), title(name)[0].upper() + title(name)[1:]
        figures.append(_banded(chosen, name, said, percent=percent))
        if all("loss_mean" in run.last for _, run in chosen):  # a truth alone has none
            figures.append(_banded(chosen, "loss", "Loss", percent=False))
        if all(f"{name}_by_node" in run.last for _, run in chosen):
            figures.append(_final(chosen, name, said, percent=percent))
    everyone = list(enumerate(runs))
    figures.insert(2 if figures else 0, _epsilon(everyone))
    known = [(i, run) for i, run in everyone if "consensus_distance" in run.last]  # not at a site of a study
    if known:
        figures.insert(3 if len(figures) > 1 else 1, _consensus(known))
    for key, words in (("gradient_norm", "Gradient norm"), ("clipped_share", "Clipped share")):
        seen = [(i, run) for i, run in everyone if "gradient_norm" in run.last.get("not_private", {})]
        if seen:
            figures.append(_diagnostic(seen, key, words))
    return figures


def _not_private(runs: list[tuple[int, Run]]) -> str | None:
    """Why one of the runs' figures must stay here."""
    said = (f"the hold-out is {run.last['hold_out']}" for _, run in runs if "hold_out" in run.last)
    return next(said, None) or next(filter(None, (no_epsilon_covers(run.last) for _, run in runs)), None)


def _banded(runs: list[tuple[int, Run]], name: str, title: str, *, percent: bool) -> Figure:
    """Mean over nodes, and the band from the worst to the best node."""
    data: list[Trace] = []
    shown = ".1%" if percent else ".4g"
    for i, run in runs:
        rows = [row for row in run.metrics if f"{name}_mean" in row]
        at = [row["round"] for row in rows]
        low, mean, high = ([row[f"{name}_{key}"] for row in rows] for key in ("min", "mean", "max"))
        data.append(line_of(i, run, at, high, line={"width": 0}, hoverinfo="skip", mode="lines"))
        band = {"fill": "tonexty", "fillcolor": _faint(i), "hoverinfo": "skip", "mode": "lines"}
        data.append(line_of(i, run, at, low, line={"width": 0}, **band))
        data.append(
            line_of(
                i,
                run,
                at,
                mean,
                customdata=[list(pair) for pair in zip(low, high, strict=True)],
                hovertemplate=f"%{{y:{shown}}} (%{{customdata[0]:{shown}}} … %{{customdata[1]:{shown}}})",
            )
        )
    private = _not_private(runs)
    sampled = sorted({over_nodes(run.last, name) for _, run in runs} - {"nodes"})
    note = "Mean over nodes; the band spans the worst and the best node."
    if sampled:
        note = f"Mean over {sampled[0]}; the band spans the worst and the best of them."
    return Figure(
        title + (" (not private)" if private else ""),
        note + (f" {private[0].upper()}{private[1:]}." if private else ""),
        data,
        axes(title.lower() if title != "RMSE" else title, tickformat=".0%" if percent else None),
    )


def _epsilon(runs: list[tuple[int, Run]]) -> Figure:
    data: list[Trace] = []
    for i, run in runs:
        for key, dash in (("proven", "solid"), ("claimed", "dot")):
            rows = [row for row in run.metrics if row.get(f"epsilon_{key}") is not None]
            if rows:
                at, values = [0, *(r["round"] for r in rows)], [0.0, *(r[f"epsilon_{key}"] for r in rows)]
                style = {"width": 2, "dash": dash, "color": colour(i)}
                data.append(line_of(i, run, at, values, line=style, hovertemplate=f"{key} ε %{{y:.3g}}"))
    deltas = sorted({run.certificate["delta"] for _, run in runs if run.certificate})
    relations = sorted({run.certificate["adjacency"] for _, run in runs if run.certificate})
    units = sorted({run.certificate["unit"] for _, run in runs if run.certificate})
    note = "Worst node. Solid: proven; dotted: claimed by the paper; dashed: asked for."
    if deltas:
        note += f" δ = {', '.join(f'{d:g}' for d in deltas)}, {', '.join(relations)}, {' or '.join(units)}."
    absent = [run.label for _, run in runs if run.last.get("epsilon_proven") is None]
    if absent:
        note += f" No proven ε: {', '.join(absent)}."
    layout = axes("ε")
    layout["yaxis"]["rangemode"] = "tozero"
    budgets = sorted({b for _, run in runs for b in run.budgets})
    layout["shapes"] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": b, "y1": b, "line": _BUDGET_LINE}
        for b in budgets
    ]  # fmt: skip
    layout["annotations"] = [
        {"xref": "paper", "x": 0.01, "y": b, "yanchor": "bottom", "xanchor": "left", "showarrow": False,
         "text": f"asked for: {b:g}", "font": {"color": "#b03030", "size": 11}}
        for b in budgets
    ]  # fmt: skip
    if budgets:  # shapes do not stretch an axis
        most = max([*budgets, *(max(trace["y"]) for trace in data)])
        layout["yaxis"]["range"] = [0, 1.12 * most]
    return Figure("ε over rounds", note, data, layout)


def _consensus(runs: list[tuple[int, Run]]) -> Figure:
    data = []
    for i, run in runs:
        at = [row["round"] for row in run.metrics]
        values = [row["consensus_distance"] for row in run.metrics]
        data.append(line_of(i, run, at, values, hovertemplate="%{y:.3g}"))
    layout = axes("distance")
    seen = [value for trace in data for value in trace["y"] if value > 0]
    if seen and max(seen) > 100 * min(seen):  # a run of one node has distance 0, which a log axis leaves out
        layout["yaxis"] |= {"type": "log", "dtick": 1, "exponentformat": "power"}
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    private = any(no_epsilon_covers(run.last) and "hold_out" not in run.last for _, run in runs)
    return Figure(
        "Consensus distance" + (" (not private)" if private else ""),
        "Root mean square distance of the nodes' models from their mean.",
        data,
        layout,
    )


def _final(runs: list[tuple[int, Run]], name: str, title: str, *, percent: bool) -> Figure:
    data = []
    shown = ".1%" if percent else ".4g"
    for i, run in runs:
        values = run.last[f"{name}_by_node"]
        sampled = nodes_judged(run.last, name)
        nodes = list(range(len(values))) if sampled is None else sampled
        marker = {"size": 9, "color": colour(i), "symbol": _symbol(i)}
        data.append(
            line_of(i, run, nodes, values, mode="markers", marker=marker,
                  hovertemplate=f"node %{{x}}: %{{y:{shown}}}")
        )  # fmt: skip
    layout = axes(title.lower() if percent else title, tickformat=".1%" if percent else None)
    layout["xaxis"] |= {"title": {"text": "node", "standoff": 8}, "tickformat": "d"}
    layout["hovermode"] = "closest"
    shares = [value for _, run in runs for value in run.last[f"{name}_by_node"]] if percent else []
    if shares and max(shares) - min(shares) < 0.01:  # left alone, the axis of equal points goes to 150%
        layout["yaxis"] |= {"range": [max(0.0, min(shares) - 0.05), min(1.0, max(shares) + 0.05)]}
    rounds = sorted({run.last["round"] for _, run in runs})
    after = f"after {rounds[0]:,} rounds" if len(rounds) == 1 else "at the end"
    samples = sorted({over_nodes(run.last, name) for _, run in runs} - {"nodes"})
    of = f"{title} of {samples[0]}" if samples else f"{title} of every node"
    return Figure(of, f"Each node's own model {after}.", data, layout)


def _diagnostic(runs: list[tuple[int, Run]], key: str, title: str) -> Figure:
    data = []
    for i, run in runs:
        rows = [row for row in run.metrics if "gradient_norm" in row.get("not_private", {})]
        means = [sum(row["not_private"][key]) / len(row["not_private"][key]) for row in rows]
        data.append(line_of(i, run, [row["round"] for row in rows], means, hovertemplate="%{y:.3g}"))
    note = "Mean over nodes, computed from training records: not private, must stay here."
    return Figure(f"{title} (not private)", note, data, axes(title.lower()))


def topologies(runs: Sequence[Run]) -> list[Figure]:
    """Each different graph once, with the runs that use it."""
    figures = []
    done: list[dict[str, Any]] = []
    for run in runs:
        if run.topology in done or run.topology["nodes"] == 1:
            continue
        done.append(run.topology)
        users = [other.label for other in runs if other.topology == run.topology]
        figures.append(_graph(run.topology, users if len(runs) > 1 else []))
    return figures


def _graph(topology: dict[str, Any], users: list[str]) -> Figure:
    n, rounds = topology["nodes"], topology.get("edges", [])
    directed = bool(topology["figures"].get("directed"))
    if n > _MOST_DRAWN:
        rule = f": {topology['rule']}" if "rule" in topology else ""
        note = f"{n:,} nodes, too many to draw{rule}"
        note += f" Used by {', '.join(users)}." if users else ""
        hidden = {"visible": False}
        return Figure(f"Topology: {topology['kind']}", note, [], {"xaxis": hidden, "yaxis": hidden})
    links = sorted({_pair(edge, directed) for edges in rounds for edge in edges})
    place = _places(n, links)
    changes = len(rounds) > 1
    data: list[Trace] = []
    note = f"{n} node{'s' * (n > 1)}, {len(links)} {'directed ' if directed else ''}link{'s' * (len(links) != 1)}"
    if len(links) > _MOST_LINKS:
        note += " (too many to draw)"
    elif not changes:
        data.append(_links(links, place, "links", "#8a8f98", directed=directed))
    else:
        data.append(_links(links, place, f"all of {len(rounds)} rounds", "#d4d7dc", directed=False))
        for t, edges in enumerate(rounds[: len(_ROUND_COLOURS)]):
            own = sorted({_pair(edge, directed) for edge in edges})
            data.append(_links(own, place, f"round {t + 1}", _ROUND_COLOURS[t], directed=directed))
        seen = "repeats" if topology["period"] else "never repeats; shown are the first"
        note += f" over {len(rounds)} rounds ({seen})"
    dot = 26 if n <= 40 else 12 if n <= _MOST_PLACED else 5
    data.append(
        {
            "type": "scatter", "mode": "markers+text" if n <= 40 else "markers",
            "x": [x for x, _ in place], "y": [y for _, y in place], "text": [str(i) for i in range(n)],
            "marker": {"size": dot, "color": "#fff", "line": {"color": "#333", "width": 1.5}},
            "textfont": {"size": 11}, "hovertemplate": "node %{text}<extra></extra>", "showlegend": False,
        }
    )  # fmt: skip
    axis = {"visible": False, "range": [-1.2, 1.2]}
    layout = {
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0}, "hovermode": "closest", "showlegend": changes,
        "legend": {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0.5, "xanchor": "center"},
        "xaxis": {**axis, "scaleanchor": "y"}, "yaxis": axis, "dragmode": False,
    }  # fmt: skip
    note += f". Used by {', '.join(users)}." if users else "."
    return Figure(f"Topology: {topology['kind']}", note, data, layout)


def _pair(edge: Sequence[int], directed: bool) -> tuple[int, int]:
    sender, receiver = edge
    return (sender, receiver) if directed or sender < receiver else (receiver, sender)


def _places(n: int, links: list[tuple[int, int]]) -> list[tuple[float, float]]:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(links)
    if n > _MOST_PLACED or not links or nx.is_isomorphic(graph, nx.cycle_graph(n)):
        found = nx.circular_layout(graph)
    elif nx.is_connected(graph):
        found = nx.kamada_kawai_layout(graph, pos=nx.circular_layout(graph))
    else:
        found = nx.spring_layout(graph, seed=0)
    widest = max((abs(c) for xy in found.values() for c in xy), default=1.0) or 1.0
    return [(round(float(found[i][0] / widest), 4), round(float(found[i][1] / widest), 4)) for i in range(n)]


def _links(
    links: list[tuple[int, int]],
    place: list[tuple[float, float]],
    name: str,
    colour: str,
    *,
    directed: bool,
) -> Trace:
    x: list[float | None] = []
    y: list[float | None] = []
    for a, b in links:
        x += [place[a][0], place[b][0], None]
        y += [place[a][1], place[b][1], None]
    trace: Trace = {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "hoverinfo": "skip",
        "line": {"color": colour, "width": 1.5},
    }  # fmt: skip
    if directed:  # an arrowhead at every receiver, just outside its circle
        trace["mode"] = "lines+markers"
        trace["marker"] = {
            "symbol": "arrow", "angleref": "previous", "standoff": 14, "color": colour,
            "size": [0, 11, 0] * len(links),
        }  # fmt: skip
    return trace


def line_of(i: int, run: Run, x: list[Any], y: list[Any], **changes: Any) -> Trace:
    dash = "dash" if i >= len(COLOURS) else "solid"
    trace = {
        "type": "scatter", "mode": "lines+markers" if len(x) <= 30 else "lines", "x": x, "y": y, "name": run.label,
        "line": {"width": 2, "color": colour(i), "dash": dash}, "marker": {"size": 5, "color": colour(i)},
        "showlegend": False, "meta": i,
    }  # fmt: skip
    return trace | changes


def axes(y: str, tickformat: str | None = None) -> dict[str, Any]:
    axis = {"automargin": True, "gridcolor": "#eceef1", "zeroline": False, "fixedrange": True}
    return {
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "hovermode": "x unified",
        "dragmode": False,
        "xaxis": {**axis, "title": {"text": "round", "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 12}, "tickformat": tickformat or ""},
    }


def _faint(i: int) -> str:
    red, green, blue = (int(colour(i)[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"


def _symbol(i: int) -> str:
    return ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")[i % 7]
