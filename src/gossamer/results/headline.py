"""Which metric of a run is the one to read, what it is called, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.models.measures import key_of, measures

SCORED = "scored_nodes"  # the key of a line whose figures on the hold-out are of a sample of the nodes
DEFAULT_METRICS = ("accuracy", "rmse")  # what a line is read by if it does not say
_ALSO_JUDGED = ("loss_", "truth_rmse_", "hold_out_rows", "consensus_distance")  # an evaluation's other keys


def _kinds() -> dict[str, Any]:
    return {key_of(kind): kind for kind in measures.kinds.values()}


def known(name: str) -> bool:
    """Is there such a metric? Who reads a stranger's file asks."""
    return name == "truth_rmse" or name in _kinds()


def nodes_judged(row: Mapping[str, Any], name: str) -> list[int] | None:
    """The nodes that a line's figures by this metric are of, where that is a sample; None: all of them."""
    # On records that the nodes keep out, all of them have their part.
    of_all = name == "truth_rmse" or f"{name}_noise" in row
    return None if of_all else row.get(SCORED)


def over_nodes(row: Mapping[str, Any], name: str) -> str:
    """Over which nodes a line's mean, smallest and largest figure are."""
    sample = nodes_judged(row, name)
    return "nodes" if sample is None else f"{len(sample):,} nodes drawn by the seed"


def in_per_cent(name: str) -> bool:
    return name != "truth_rmse" and bool(_kinds()[name].share)


def larger_is_better(name: str) -> bool:
    return name != "truth_rmse" and bool(_kinds()[name].larger_is_better)


def title(name: str) -> str:
    return "RMSE to the truth" if name == "truth_rmse" else str(_kinds()[name].title)


def unit(name: str) -> str:
    """The title of a column or an axis."""
    return f"{title(name)} (%)" if in_per_cent(name) else title(name)


def written(name: str, value: float, places: int = 2) -> str:
    """`places`: of per cents behind the point; others have four significant digits."""
    return f"{value:.{places}%}" if in_per_cent(name) else f"{value:.4g}"


def worst(name: str) -> str:
    """The key of the worst node's figure."""
    return f"{name}_min" if larger_is_better(name) else f"{name}_max"


def headline(row: Mapping[str, Any]) -> str | None:
    """The metric a line is read for: what it says itself, else what the hold-out measured; None without one."""
    said: str | None = row.get("metric")
    return said or next((name for name in DEFAULT_METRICS if f"{name}_mean" in row), None)


def measured(row: Mapping[str, Any]) -> list[str]:
    """All metrics of a line, the one it is read for first."""
    first = headline(row)
    found = [name for name in ("truth_rmse", *_kinds()) if f"{name}_mean" in row]
    return sorted(found, key=lambda name: name != first)


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """A line with the figures it is read by at its top, wherever they stand: those under `not_private` have no ε."""
    hidden = row.get("not_private") or {}
    return {**{key: value for key, value in hidden.items() if of_an_evaluation(key)}, **row}


def of_an_evaluation(key: str) -> bool:
    """Is it a key of an evaluation's figures?"""
    return key.startswith((*(f"{name}_" for name in _kinds()), *_ALSO_JUDGED)) or key == "metric"


def on_hold_out(key: str) -> bool:
    """Is it a figure on the hold-out, or a word about it? How far models are apart, or from a truth, is not."""
    return key.startswith((*(f"{name}_" for name in _kinds()), "loss_", "hold_out"))


def no_epsilon_covers(row: Mapping[str, Any]) -> str | None:
    """Why the figures that a line is read by are not private; None where they are what everyone could compute."""
    because: str | None = (row.get("not_private") or {}).get("because")
    return because
