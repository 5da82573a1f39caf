"""From the results of a row's cells to the figures of the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gossamer.results.headline import headline, measured, no_epsilon_covers, worst

Spread = tuple[float | None, float | None]  # mean and standard deviation


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation (n − 1); a single value has no deviation.

    None is a figure that was not finite: with one of them there is no mean, and the others must not hide it.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1))


def metric_of(results: Sequence[dict[str, Any]]) -> str | None:
    """What the runs are compared by; None where nothing was measured."""
    return next((name for name in map(headline, results) if name), None)


def summarise(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation over seeds; of every ε the worst, and none where one of the seeds has none."""
    metric = metric_of(results)
    figures: dict[str, Any] = {"seeds": len(results), "metric": metric}
    names = dict.fromkeys(["accuracy", "rmse", "truth_rmse", *(n for r in results for n in measured(r))])
    for name, key in (
        *((name, f"{name}_mean") for name in names),
        ("worst_node", worst(metric) if metric else ""),
        ("consensus_distance", "consensus_distance"),
        ("seconds", "seconds"),
    ):
        figures[f"{name}_mean"], figures[f"{name}_std"] = spread([r[key] for r in results if key in r])
    for key in ("epsilon_claimed", "epsilon_proven"):
        known = [r[key] for r in results]
        figures[key] = max(known) if known and None not in known else None
    figures["not_proven_because"] = next(
        (r["not_proven_because"] for r in results if r["not_proven_because"]), None
    )
    figures["delta"] = max((r["delta"] for r in results), default=None)
    figures["adjacency"] = next((r["adjacency"] for r in results), None)
    figures["unit"] = next((r["unit"] for r in results), None)
    figures["not_private"] = next(filter(None, map(no_epsilon_covers, results)), None)
    figures["stamp"] = next((r["stamp"] for r in results if r["stamp"]), None)
    return figures


def curve(results: Sequence[dict[str, Any]]) -> list[tuple[int, Spread]]:
    """The metric over the rounds at which every seed was evaluated."""
    metric = metric_of(results)
    if metric is None:
        return []
    key = f"{metric}_mean"  # on private records only the last line has it
    histories = [{row["round"]: row[key] for row in r["history"] if key in row} for r in results]
    common = sorted(set.intersection(*(set(history) for history in histories)))
    return [(at, spread([history[at] for history in histories])) for at in common]
