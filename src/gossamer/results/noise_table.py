"""`gossamer plan --noises`: DP-dKM's noises at one budget, as the paper calibrates them and as a proof would."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.table import Column, Table

from gossamer.accounting.noise_comparison import noise_lines
from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER
from gossamer.results.terminal import terminal


def noise_summary(o: Any) -> dict[str, Any]:
    """The JSON object: the budget, the size of the run, and one entry per noise."""
    plan = o.privacy
    if plan.copies > 1 or plan.preprocesses:
        raise UserError(
            "--noises compares releases of a record on one node, from the first round on; use data.partition.kind = "
            "'even' and leave out privacy.preprocessing."
        )
    epsilons = [node.epsilon for node in plan.nodes if node.epsilon is not None]
    if not epsilons:
        raise UserError("--noises needs a budget to compare at; set privacy.epsilon.")
    budget = {
        "epsilon": min(epsilons),
        "delta": min(node.delta for node in plan.nodes),
        "adjacency": plan.adjacency,
    }
    size = {"releases": plan.draws, "dimension": o.stack.dim}
    lines = noise_lines(**budget, **size)
    return {
        **budget,
        **size,
        "unit": plan.unit,
        "observer": OBSERVER,
        "noises": [asdict(line) for line in lines],
    }


def show_noises(summary: dict[str, Any]) -> None:
    console = terminal()
    s = summary
    heads = (
        "claimed std",
        "ends at",
        f"δ at ε={s['epsilon']:g}",
        f"ε at δ={s['delta']:g}",
        "identifies",
        "proven std",
    )
    table = Table(Column("noise", no_wrap=True), *heads, box=None)
    for line in s["noises"]:
        table.add_row(
            line["noise"],
            *(
                _number(line[key])
                for key in ("claimed_std", "bound", "true_delta", "true_epsilon", "identifying", "proven_std")
            ),
        )
    console.print(table)
    budget = f"δ = {s['delta']:g}, {s['adjacency']}, unit: {s['unit']}; observer: {s['observer']}"
    for text in (
        "All in units of the sensitivity. Claimed: as the paper calibrates it to this ε and δ; beside it what one",
        "release of one number has, and the probability that the run shows outright a record that moves one number.",
        f"Proven: the least noise with which {s['releases']} releases of {s['dimension']} numbers, full batches, cost "
        f"at most ε = {s['epsilon']:g} ({budget}).",
        "Shapes other than 1 and 2 are priced number by number at the whole sensitivity: up to √dimension too much.",
    ):
        console.print(text, soft_wrap=True)
    for line in s["noises"]:
        if line["remark"]:
            console.print(f"{line['noise']}: {line['remark']}", soft_wrap=True)


def _number(value: float | None) -> str:
    if value is None:
        return "—"
    return "∞" if math.isinf(value) else f"{value:.3g}"
