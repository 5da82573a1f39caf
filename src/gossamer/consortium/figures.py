"""What one site shows of its rounds: figures of its own model alone."""

from __future__ import annotations

import math
from typing import Any

from gossamer.results.headline import headline, title


def own_figures(row: dict[str, Any]) -> dict[str, Any]:
    """Of an evaluation of one node: a site knows its own model alone, so nothing is said about all."""
    about_all = ("consensus_distance", "push_sum_mass")
    kept = {
        key: value
        for key, value in row.items()
        if key not in about_all and not key.endswith("_average_model")
    }
    return kept if "push_sum_mass" not in row else {**kept, "push_sum_weight": row["push_sum_mass"]}


def line(row: dict[str, Any], rounds: int) -> str:
    """One evaluation on the terminal."""
    name = headline(row)
    quality = f", {title(name)} {row[f'{name}_mean']:.3f}" if name and f"{name}_mean" in row else ""
    away = [f"{site} {state}" for site, state in row["links"].items() if state != "up"]
    spent = row["epsilon_proven"]
    epsilon = f", planned ε {spent:.3g}" if spent is not None and math.isfinite(spent) else ""
    return f"round {row['round']} of {rounds}{quality}{epsilon}{'; ' if away else ''}{', '.join(away)}"
