"""The metric that a run is judged by: its name, its title and its format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.models.measures import key_of, measures

SCORED = "scored_nodes"  # the key of a line whose figures on the hold-out are of a sample of the nodes
DEFAULT_METRICS = ("accuracy", "rmse")  # if a line does not name its metric
TRUTH = "truth_rmse"  # the metric of a set whose coefficients are known
_ALSO_JUDGED = ("loss_", "hold_out_rows", "consensus_distance")  # an evaluation's other keys


class _ToTheTruth:
    title, share, larger_is_better = "RMSE to the truth", False, False


def _names() -> list[str]:
    return [TRUTH, *map(key_of, measures.kinds.values())]


def _kind(name: str) -> Any:
    """Return the measure of this name; None: there is none. To list all of them would load every plug-in."""
    if name == TRUTH:
        return _ToTheTruth
    kinds = (kind for kind in (name.replace("_", "-"), name) if kind in measures)
    return next((measures[kind] for kind in kinds if key_of(measures[kind]) == name), None)


def known(name: str) -> bool:
    """Is there such a metric? For files of unknown authors."""
    return _kind(name) is not None


def nodes_judged(row: Mapping[str, Any], name: str) -> list[int] | None:
    """Return the nodes that a line's figures by this metric are of, where that is a sample; None: all of them."""
    # Figures on kept-out records are of all nodes.
    return None if name == TRUTH or f"{name}_noise" in row else row.get(SCORED)


def over_nodes(row: Mapping[str, Any], name: str) -> str:
    """Name the nodes of a line's mean, smallest and largest figure."""
    sample = nodes_judged(row, name)
    return "nodes" if sample is None else f"{len(sample):,} nodes drawn by the seed"


def in_per_cent(name: str) -> bool:
    return bool(_kind(name).share)


def larger_is_better(name: str) -> bool:
    return bool(_kind(name).larger_is_better)


def title(name: str) -> str:
    return str(_kind(name).title)


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
    """Return the metric a line is judged by: the one it names, else what the hold-out measured; None without one."""
    named: str | None = row.get("metric")
    return named or next((name for name in DEFAULT_METRICS if f"{name}_mean" in row), None)


def measured(row: Mapping[str, Any]) -> list[str]:
    """Return all metrics of a line, the one it is judged by first."""
    first, ends = headline(row), "_mean"
    names = [key.removesuffix(ends) for key in row if key.endswith(ends) and key != f"loss{ends}"]
    return sorted(filter(known, names), key=lambda name: name != first)


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """Return a line with the figures it is judged by at its top, also those under `not_private`, which no ε covers."""
    hidden = row.get("not_private") or {}
    return {**{key: value for key, value in hidden.items() if of_an_evaluation(key)}, **row}


def of_an_evaluation(key: str) -> bool:
    """Is it a key of an evaluation's figures?"""
    return key.startswith((*(f"{name}_" for name in _names()), *_ALSO_JUDGED)) or key == "metric"


def on_hold_out(key: str) -> bool:
    """Is it a figure on the hold-out, or a word about it? How far models are apart, or from a truth, is not."""
    names = (f"{name}_" for name in _names() if name != TRUTH)
    return key.startswith((*names, "loss_", "hold_out"))


def no_epsilon_covers(row: Mapping[str, Any]) -> str | None:
    """Return why the figures that a line is judged by are not private; None where everyone could compute them."""
    because: str | None = (row.get("not_private") or {}).get("because")
    return because
