"""The figures of a comparison: mean and deviation over seeds, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.headline import headline, in_per_cent, measured, no_epsilon_covers, unit, worst
from gossamer.results.tables import Table
from gossamer.studies.compare.grid import EPSILON, plain, short

Column = tuple[str, Callable[[dict[str, Any]], str]]  # its title, and the text of a row in it
Spread = tuple[float | None, float | None]  # mean and standard deviation


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation (n − 1); a single value has no deviation.

    None is a figure that was not finite: with one of them there is no mean, and the others must not hide it.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def metric_of(results: Sequence[dict[str, Any]]) -> str | None:
    """What the runs are compared by; None where nothing was measured."""
    return next((name for name in map(headline, results) if name), None)


def summarise(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation over seeds; of every ε the worst, and none where one of the seeds has none."""
    metric = metric_of(results)
    figures: dict[str, Any] = {"seeds": len(results), "metric": metric}
    names = dict.fromkeys(["accuracy", "rmse", "truth_rmse", *(n for r in results for n in measured(r))])
    keys = {name: f"{name}_mean" for name in names} | {"worst_node": worst(metric) if metric else ""}
    for name, key in {**keys, "consensus_distance": "consensus_distance", "seconds": "seconds"}.items():
        figures[f"{name}_mean"], figures[f"{name}_std"] = spread([r[key] for r in results if key in r])
    for key in ("epsilon_claimed", "epsilon_proven"):
        known = [r[key] for r in results]
        figures[key] = max(known) if known and None not in known else None

    def first(key: str) -> Any:
        return next((r[key] for r in results if r[key]), None)

    figures["not_proven_because"] = first("not_proven_because")
    figures["delta"] = max((r["delta"] for r in results), default=None)
    figures |= {"adjacency": first("adjacency"), "unit": first("unit")}
    figures["not_private"] = next(filter(None, map(no_epsilon_covers, results)), None)
    figures["stamp"] = first("stamp")
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


def compare_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of `gossamer compare` (see command.py); what is the same in all of them goes into the caption."""
    varied = list(rows[0]["settings"]) if rows else []
    metrics = {row["metric"] for row in rows if row["metric"]}
    same = one_relation(rows)

    def setting(key: str) -> Column:
        title = "asked ε" if key == EPSILON else short(key)
        return title, lambda row: "any" if row["settings"][key] is None else plain(row["settings"][key])

    columns: list[Column] = []
    if len({row["recipe"] for row in rows}) > 1 or not varied:
        columns += [("recipe", lambda row: row["recipe"])]
    columns += map(setting, varied)
    if any(row["baseline"] for row in rows):
        columns += [("baseline", lambda row: row["baseline"] or "—")]
    columns += [
        (" or ".join(unit(m) for m in sorted(metrics)) or "accuracy", quality_text),
        ("worst node", lambda row: quality_text(row, "worst_node")),
        ("consensus distance", lambda row: _spread_text(row, "consensus_distance")),
        ("claimed ε", lambda row: epsilon_text(row["epsilon_claimed"])),
        ("proven ε", proven_text),
    ]
    if not same:
        columns += [
            ("δ", lambda row: "—" if row["delta"] is None else f"{row['delta']:g}"),
            ("adjacency", lambda row: row["adjacency"] or "—"),
        ]
    columns += [("seconds", lambda row: _spread_text(row, "seconds"))]
    body = tuple(tuple(text(row) for _, text in columns) for row in rows)
    return Table(tuple(title for title, _ in columns), body, tuple(caption(rows, same)))


def caption(rows: Sequence[dict[str, Any]], same: bool) -> list[str]:
    """What the figures mean; no ε without δ, adjacency, unit and observer."""
    seeds = sorted({row["seeds"] for row in rows})
    count = "–".join(str(n) for n in sorted({seeds[0], seeds[-1]})) if seeds else "0"
    relation = f"δ = {rows[0]['delta']:g}, {rows[0]['adjacency']}; " if same and rows else ""
    units = sorted({row["unit"] for row in rows} - {None})
    plural = "" if count == "1" else "s"
    lines = [
        f"Mean ± standard deviation over {count} seed{plural}; ε is the worst over seeds and nodes.",
        f"ε: {relation}unit: {' or '.join(units or [UNIT])}; observer: {OBSERVER}.",
    ]
    return [*lines, *warnings(rows)]


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What is not proven, not private or seeded among these figures, each reason once."""

    def reasons(key: str) -> list[str]:
        return sorted({str(row[key]) for row in rows if row.get(key)})

    hidden = [f"† not private, no ε covers it, to stay here: {why}." for why in reasons("not_private")]
    stamps = [stamp.upper() for stamp in reasons("stamp")]
    return [*(f"not proven: {why}" for why in reasons("not_proven_because")), *hidden, *stamps]


def one_relation(rows: Sequence[dict[str, Any]]) -> bool:
    """Do all rows mean the same by ε?"""
    known = {(row["delta"], row["adjacency"]) for row in rows}
    return len(known) == 1 and None not in next(iter(known))


def quality_text(row: dict[str, Any], name: str = "") -> str:
    """Accuracy in per cent with two decimals, as the papers print it; RMSE in significant digits."""
    name = name or row["metric"] or "accuracy"
    mean, std = row[f"{name}_mean"], row[f"{name}_std"]
    if mean is None:
        return "—"
    mark = " †" if row.get("not_private") else ""
    if not in_per_cent(row["metric"] or "accuracy"):
        return figure_text(mean, std) + mark
    return f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if std is not None else "") + mark


def figure_text(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "—"
    return f"{mean:.3g}" + (f" ± {std:.2g}" if std is not None else "")


def _spread_text(row: dict[str, Any], name: str) -> str:
    return figure_text(row[f"{name}_mean"], row[f"{name}_std"])


def proven_text(row: dict[str, Any]) -> str:
    unproven = row["epsilon_proven"] is None and row["seeds"]
    return "not proven" if unproven else epsilon_text(row["epsilon_proven"])
