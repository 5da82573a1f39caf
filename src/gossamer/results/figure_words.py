"""Figures as people read them on a terminal: what is proven stands out, the rest says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

ROW_LEGEND = (
    "min / mean / max over {}; consensus: the models' distance from their mean; sent: by all nodes so far"
)
_STYLES = (
    (r"proven ε = (∞|—)", "bold red"),
    (r"proven ε = [^ ∞—]+", "bold green"),
    (r"claimed ε = \S+", "yellow"),
    (r"audited ε ≥ [^ —]+", "bold magenta"),
    (r"audited ε ≥ —", "dim"),
    (r"\(δ = .*\)$", "dim"),
    (r"^proven: .*", "dim"),
)


def coloured(line: str) -> Text:
    """A line with the three ε, each in the colour of what it is; a terminal without colours shows the words alone."""
    text = Text(line)
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def graph_line(figures: Mapping[str, Any]) -> str:
    """A topology's figures in words; what is not known is left out."""
    said = ["directed" if figures["directed"] else "undirected"]
    if (longest := figures.get("diameter")) is not None:
        said.append(f"diameter {longest}")
    if (rounds := figures.get("rounds until strongly connected")) is not None:
        said.append("connected in every round" if rounds == 1 else f"connected over any {rounds} rounds")
    if (degree := figures.get("mean out-degree")) is not None:
        said.append(f"each node sends to {degree:.3g} other{'s' * (degree != 1)} a round")
    looked, gap = figures.get("rounds looked at") or 1, figures.get("spectral gap")
    if gap is not None:
        each = figures.get("spectral gap per round")  # none where all rounds together are exact
        per_round = "" if each is None else f" ({each:.3g} per round)"
        said.append(f"spectral gap {gap:.3g}" + ("" if looked == 1 else f" over {looked} rounds{per_round}"))
    if (connectivity := figures.get("algebraic connectivity")) is not None:
        said.append(f"algebraic connectivity {connectivity:.3g}")
    return ", ".join(said)
