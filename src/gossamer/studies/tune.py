"""`gossamer tune`: settings chosen on private records, and paid for.

Every candidate is a private run of its own, and all of them share one budget: their releases compose to the ε asked
for. The choice looks at their models on a public hold-out only, so it is post-processing and costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.accounting.recompute import worst_epsilon
from gossamer.config.layers import named, resolve
from gossamer.errors import UserError
from gossamer.methods import method_of
from gossamer.options.sentences import as_mapping, as_path
from gossamer.results.certificate import account, epsilon_text, relation
from gossamer.results.headline import headline, larger_is_better, no_epsilon_covers
from gossamer.results.notebook import Shown, quality
from gossamer.results.terminal import Table
from gossamer.studies.cells import Recipe, Row, lay_out, ledgers, plain, run_rows
from gossamer.studies.compare import default_folder

# What may differ between candidates: nothing that a release's price depends on.
_FREE = ("algorithm.", "model.", "topology.", "loss", "data.transform", "privacy.clip")


@dataclass(frozen=True, repr=False)
class Tuning(Shown):
    """The candidates, the chosen one, and what all of them cost together."""

    result: dict[str, Any]  # what `--json` prints

    @property
    def candidates(self) -> list[dict[str, Any]]:
        return list(self.result["candidates"])

    @property
    def chosen(self) -> dict[str, Any] | None:
        chosen: dict[str, Any] | None = self.result["chosen"]
        return chosen

    @property
    def epsilon_proven(self) -> float | None:
        """Of all candidates together; δ, adjacency, unit and observer are next to it in `result`."""
        epsilon: float | None = self.result["epsilon_proven"]
        return epsilon

    @property
    def failed(self) -> dict[str, str]:
        return dict(self.result["failed"])

    @property
    def directory(self) -> Path | None:
        """Of the chosen run."""
        return Path(self.result["run_dir"]) if self.result["run_dir"] else None

    def _parts(self) -> tuple[str, Table, Any, list[str]]:
        rows = [
            (
                ", ".join(f"{key} = {plain(value)}" for key, value in candidate["settings"].items()),
                quality(candidate) or "—",
                epsilon_text(candidate["epsilon_proven"]),
                "chosen" if candidate == self.chosen else "",
            )
            for candidate in self.candidates
        ]
        bold = next((i for i, row in enumerate(rows) if row[-1]), None)
        notes = [f"{label} failed: {reason}" for label, reason in self.failed.items()]
        if self.chosen is not None:
            epsilon = epsilon_text(self.epsilon_proven)
            notes.append(f"all runs together: proven ε = {epsilon} ({relation(self.result)})")
            notes.append(f"the chosen run: {self.directory}")
        notes += account(self.result.get("budget"))
        table = Table(("settings", "judged by", "own ε", ""), rows, bold=bold)
        return "Settings chosen by private runs", table, None, notes


def tune(
    recipe: Recipe,
    changes: Mapping[str, Any] | None = None,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    engine: str = "local",
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = True,
) -> Tuning:
    """Choose among the values of `over` by private runs that share one budget; the choice sees a public hold-out.

    `gossamer.tune("my.toml", over={"algorithm.lr": [1.0, 3.0]})`. `quiet`: progress goes to stderr.
    """
    varied, fixed = as_mapping("over", over), as_mapping("changes", changes)
    name, tables = named(recipe)
    for key in varied:
        if not key.startswith(_FREE):
            free = "algorithm, model, topology, loss, data.transform and privacy.clip"
            raise UserError(f"--over {key} changes a release's cost or what is learned; choose among {free}.")
    config = resolve(tables, fixed)
    if config.data.held_out or not config.data.test_is_public:
        remedy = "name a public hold-out with data.test, and leave out data.held_out"
        raise UserError(f"the choice would look at private records without paying for it; {remedy}.")
    if "algorithm.kind" in varied or method_of(config).keeps_local_models:
        why = "the choice is among settings of one method that keeps no local models"
        raise UserError(f"algorithm.kind = {config.algorithm.kind!r}: {why}; leave it as one gossip method.")
    count = len(lay_out([recipe], sets=fixed, overs=varied))
    if count < 2:
        raise UserError("there is nothing to choose from; list several values, as --over algorithm.lr=1,3.")
    rows = lay_out([recipe], sets={**fixed, "privacy.runs": count}, overs=varied)
    out, data_dir = as_path("out", out), as_path("data_dir", data_dir)
    out = out or default_folder([name], rows)
    batch = run_rows(rows, out, jobs=jobs, engine=engine, data_dir=data_dir, force=force, quiet=quiet)
    finished = [(row, results[0]) for row, results in zip(rows, batch.results, strict=True) if results]
    together = ledgers(out)  # what failed, was stopped or was lost has spent its draws too
    unpaid = next(filter(None, (no_epsilon_covers(result) for _, result in finished)), None)
    if unpaid is not None:  # what everyone could not compute would have to be paid for
        raise UserError(f"the choice would use figures that no ε covers ({unpaid}); judge what is released.")
    best = max(finished, key=lambda pair: _goodness(pair[1]), default=None)
    first = finished[0][1] if finished else {}
    terms = {key: first.get(key) for key in ("delta", "adjacency", "unit", "observer")}
    result = {
        "candidates": [_figures(row, result) for row, result in finished],
        "chosen": _figures(*best) if best else None,
        "run_dir": str(best[0].cells[0].folder(out)) if best else None,
        "epsilon_proven": worst_epsilon(together) if together else None,
    }
    return Tuning({**result, **terms, **batch.summary})


def _figures(row: Row, result: dict[str, Any]) -> dict[str, Any]:
    keys = ("metric", f"{headline(result)}_mean", "epsilon_proven")
    return {"settings": row.settings, **{key: result[key] for key in keys if key in result}}


def _goodness(result: dict[str, Any]) -> float:
    name = headline(result)
    if name is None or result.get(f"{name}_mean") is None:  # nothing was measured, or it went astray
        return 0.0 if name is None else -math.inf
    mean: float = result[f"{name}_mean"]
    return mean if larger_is_better(name) else -mean
