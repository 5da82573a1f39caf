"""Who sends to whom, on a ring, as SVG; and of a peer, how its links to the other sites are."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

_SIZE, _RADIUS, _MOST_NODES, _MOST_LINKS = 400, 150, 200, 3000
_LABELLED = 40  # nodes with their number beside them
# A state is told by colour, by dashes and by a sign in the middle of the link.
LOOKS = {
    "up": ("#00714f", "", "✓"),
    "suspect": ("#b35900", "7 4", "?"),
    "down": ("#b03030", "2 5", "✕"),
}
_NOW, _OTHER = "#0072b2", "#c9ced6"


def link_states(site: str, links: Mapping[str, str]) -> str:
    """A peer in the middle, the other sites around it."""
    names = sorted(links)[:_LABELLED]
    centre, drawn = _SIZE / 2, []
    for (x, y), name in zip(_ring(len(names), 130), names, strict=True):
        colour, dash, sign = LOOKS[links[name]]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        mx, my = (centre + x) / 2, (centre + y) / 2
        drawn.append(
            f'<line x1="{centre}" y1="{centre}" x2="{x:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="3"{dashes}/>'
            f'<circle cx="{mx:.1f}" cy="{my:.1f}" r="10" fill="#fff" stroke="{colour}" stroke-width="2"/>'
            f"{_text(mx, my + 5, sign, fill=colour)}{_dot(x, y)}{_text(x, y + (-14 if y < centre else 24), _short(name))}"
        )
    drawn.append(_dot(centre, centre, 10) + _text(centre, centre + 28, _short(site), weight=600))
    counted = {state: sum(1 for one in links.values() if one == state) for state in LOOKS}
    legend = "".join(_legend_row(state, counted[state], i) for i, state in enumerate(LOOKS))
    said = ", ".join(f"{counted[state]} {state}" for state in LOOKS)
    more = f" The first {_LABELLED} are drawn." if len(links) > _LABELLED else ""
    return _figure("".join(drawn) + legend, _SIZE + 40, f"Links of {site}: {said}") + _note(f"{said}.{more}")


def topology(content: Mapping[str, Any], done: int) -> str:
    """`done` rounds are over: the links of the last one stand out where they change from round to round."""
    n = content.get("nodes")
    kind = content.get("kind")
    kind = kind[:60] if isinstance(kind, str) else "a graph"
    if type(n) is not int or n < 1:
        return _note("topology.json does not say how many nodes there are.")
    if n > _MOST_NODES:
        return _note(f"{kind}: {n:,} nodes, too many to draw.")
    rounds = [_arcs(edges, n) for edges in _list(content.get("edges"))[:64]]
    every = set(chain.from_iterable(rounds))
    if len(every) > _MOST_LINKS:
        return _note(f"{kind}: {n} nodes, {len(every):,} links, too many to draw.")
    figures = content.get("figures")
    directed = isinstance(figures, dict) and bool(figures.get("directed"))
    changes = len(rounds) > 1
    repeats = content.get("period") == len(rounds)
    now = rounds[(done - 1) % len(rounds)] if rounds and done > 0 and (repeats or not changes) else set()
    place = _ring(n)
    drawn = [_link(*place[a], *place[b], _OTHER) for a, b in sorted(_once(every - now, directed=False))]
    drawn += [_link(*place[a], *place[b], _NOW, arrow=directed) for a, b in sorted(_once(now, directed))]
    for i, (x, y) in enumerate(place):
        drawn.append(_dot(x, y, 8 if n <= _LABELLED else 3))
        if n <= _LABELLED:
            far = 1 + 20 / _RADIUS
            drawn.append(
                _text(_SIZE / 2 + (x - _SIZE / 2) * far, _SIZE / 2 + (y - _SIZE / 2) * far + 4, str(i))
            )
    count = len(_once(every, directed))
    said = (
        f"{kind}: {n} node{'s' * (n > 1)}, {count} {'directed ' if directed else ''}link{'s' * (count != 1)}"
    )
    if changes:
        said += f" over {len(rounds)} rounds" + (f"; blue: those of round {done:,}" if now else "")
    return _figure("".join(drawn), _SIZE, said) + _note(f"{said}.")


def _arcs(edges: Any, n: int) -> set[tuple[int, int]]:
    """What is no pair of different nodes is left out."""
    return {
        (edge[0], edge[1])
        for edge in _list(edges)[:100_000]
        if isinstance(edge, list)
        and len(edge) == 2
        and all(type(end) is int and 0 <= end < n for end in edge)
        if edge[0] != edge[1]
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _once(arcs: set[tuple[int, int]], directed: bool) -> set[tuple[int, int]]:
    return arcs if directed else {(min(arc), max(arc)) for arc in arcs}


def _ring(n: int, radius: float = _RADIUS) -> list[tuple[float, float]]:
    """The first at the top, clockwise."""
    angles = [2 * math.pi * i / n for i in range(n)]
    return [(_SIZE / 2 + radius * math.sin(a), _SIZE / 2 - radius * math.cos(a)) for a in angles]


def _link(x1: float, y1: float, x2: float, y2: float, colour: str, *, arrow: bool = False) -> str:
    """Ends short of the receiver's dot, so that an arrow's head is seen."""
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    keep = max(0.0, 1 - 11 / length) if arrow else 1.0
    end = f'x2="{x1 + (x2 - x1) * keep:.1f}" y2="{y1 + (y2 - y1) * keep:.1f}"'
    head = ' marker-end="url(#arrow)"' if arrow else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" {end} stroke="{colour}" stroke-width="1.6"{head}/>'


def _dot(x: float, y: float, r: float = 8) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="#fff" stroke="#333" stroke-width="1.6"/>'


def _text(
    x: float, y: float, words: str, *, fill: str = "#1f2328", weight: int = 400, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}" '
        'stroke="#fff" stroke-width="4" paint-order="stroke">'
        f"{html.escape(words)}</text>"
    )


def _legend_row(state: str, count: int, i: int) -> str:
    colour, dash, sign = LOOKS[state]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    x, y = 4 + 132 * i, _SIZE + 20
    return (
        f'<line x1="{x}" x2="{x + 30}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"{dashes}/>'
        f"{_text(x + 36, y + 5, f'{sign} {state} ({count})', fill=colour, anchor='start')}"
    )


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


def _figure(drawn: str, height: int, label: str) -> str:
    head = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{_NOW}"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {height}" role="img" '
        f'aria-label="{html.escape(label)}" font-family="system-ui,sans-serif" font-size="14">{head}{drawn}</svg>'
    )


def _note(words: str) -> str:
    return f'<p class="note">{html.escape(words)}</p>'
