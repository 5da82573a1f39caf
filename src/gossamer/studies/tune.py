"""`gossamer tune`: settings chosen on private records, and paid for.

Every candidate is a private run of its own, and all of them share one budget: their releases compose to the ε asked
for. The choice looks at their models on a public hold-out only, so it is post-processing and costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gossamer.accounting.recompute import worst_epsilon
from gossamer.config import recipes
from gossamer.config.layers import parse_overrides, resolve
from gossamer.errors import UserError
from gossamer.methods import method_of
from gossamer.results.headline import no_epsilon_covers
from gossamer.studies.compare.batch import run_rows
from gossamer.studies.compare.cells import folder as folder_of
from gossamer.studies.compare.command import default_folder
from gossamer.studies.compare.grid import Row, lay_out, parse_overs

# What may differ between candidates: nothing that a release's price depends on.
_FREE = ("algorithm.", "model.", "topology.", "loss", "data.transform", "privacy.clip")


def tune(
    name: str,
    *,
    sets: Sequence[str] = (),
    overs: Sequence[str] = (),
    out: Path | None = None,
    jobs: int | None = None,
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run the candidates, and return what `--json` prints."""
    varied, fixed = parse_overs(overs), parse_overrides(sets)
    for key in varied:
        if not key.startswith(_FREE):
            raise UserError(
                f"--over {key} changes what a release costs or what is learned; a choice can be made among "
                "algorithm, model, topology, loss, data.transform and privacy.clip."
            )
    config = resolve(recipes.read(name), fixed)
    _refuse_private_choice(config.data)
    if "algorithm.kind" in varied or method_of(config).keeps_local_models:
        raise UserError(
            f"algorithm.kind = {config.algorithm.kind!r}: choose among settings of one method, and not of one "
            "whose un-noised local models would be looked at; leave it as one gossip method."
        )
    count = len(lay_out([name], sets=sets, overs=overs))
    if count < 2:
        raise UserError(
            "there is nothing to choose from: list at least two values, for example --over algorithm.lr=1,3."
        )
    rows = lay_out([name], sets=[*sets, f"privacy.runs={count}"], overs=overs)
    out = out or default_folder([name], rows)
    batch = run_rows(rows, out, jobs=jobs, data_dir=data_dir, force=force, quiet=quiet)
    finished = [(row, results[0]) for row, results in zip(rows, batch.results, strict=True) if results]
    # What failed or was stopped has spent its draws too.
    places = [*(out / "cells").glob("*/ledger"), *(out / "set-aside").glob("*/ledger")]
    together = sorted(place for place in places if any(place.iterdir()))
    _refuse_unpaid_figures(result for _, result in finished)
    best = max(
        finished, key=lambda pair: pair[1].get("accuracy_mean", -pair[1].get("rmse_mean", 0.0)), default=None
    )
    return {
        "candidates": [_figures(row, result) for row, result in finished],
        "chosen": _figures(*best) if best else None,
        "run_dir": str(folder_of(out, best[0].cells[0])) if best else None,
        "epsilon_proven": worst_epsilon(together) if together else None,
        "delta": finished[0][1]["delta"] if finished else None,
        "adjacency": finished[0][1]["adjacency"] if finished else None,
        "unit": finished[0][1]["unit"] if finished else None,
        "observer": finished[0][1]["observer"] if finished else None,
        **batch.summary,
    }


def _figures(row: Row, result: dict[str, Any]) -> dict[str, Any]:
    shown = ("accuracy_mean", "rmse_mean", "epsilon_proven")
    return {"settings": row.settings, **{key: result[key] for key in shown if key in result}}


def _refuse_unpaid_figures(results: Iterable[dict[str, Any]]) -> None:
    """What is chosen by must be what everyone could compute, or the choice itself would have to be paid for."""
    because = next(filter(None, map(no_epsilon_covers, results)), None)
    if because is not None:
        raise UserError(
            f"the choice would look at figures that no ε covers ({because}); judge what is released."
        )


def _refuse_private_choice(data: Any) -> None:
    if data.held_out or not data.test_is_public:
        raise UserError(
            "the choice would look at private records without paying for it: name a public hold-out with data.test, "
            "and leave out data.held_out."
        )
