"""The privacy statement of a finished run, its proven ε recomputed from the ledgers on disk."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gossamer.accounting.proven import Proven
from gossamer.accounting.recompute import recompute
from gossamer.plan.privacy import finite
from gossamer.results.certificate import ARITHMETIC, NOT_COVERED, NOT_PUBLIC, SEEDED, UNIT
from gossamer.run.assemble import Parts
from gossamer.run.begin import Run, versions
from gossamer.run.budget import everyones, now
from gossamer.run.budget import worst as worst_account
from gossamer.runtime.group import Group, agreed

# What `--json` of a run repeats of its certificate.
SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "stamp", "budget",
)  # fmt: skip


def certify(parts: Parts, run: Run, group: Group) -> dict[str, Any]:
    """From the ledgers alone, each priced where it lies."""
    o, config = parts.outline, parts.outline.config
    totals = agreed(group, lambda: run.accounts.settle(now(), run.directory.ledger))
    own = recompute(run.directory.ledger, group.nodes, observer=o.plan.observer)
    proofs = [Proven(**proof) for proof in group.join([asdict(node.proven) for node in own])]
    draws, heads = group.join([node.draws for node in own]), run.book.heads()
    figures = o.plan.figures()
    by_node = [
        {**entry, "proven": finite(p.epsilon)}
        for entry, p in zip(figures["epsilon_by_node"], proofs, strict=True)
    ]
    worst = max(proofs, key=lambda p: p.epsilon)
    return {
        "run": run.identity,
        **figures,
        "epsilon_proven": finite(worst.epsilon),
        "epsilon_proven_lower": worst.lower,
        "epsilon_by_node": by_node,
        "not_proven_because": worst.because,
        "unit": UNIT,
        "observer": o.plan.observer.describe(),
        "mode": config.mode,
        "method": config.algorithm.kind,
        "baseline": config.baseline,
        "weighting": config.weighting,
        "noise_source": config.privacy.noise.source,
        "stamp": SEEDED if o.seeded else None,
        # Over all runs on the same records of the user's own; None for public ones.
        "budget": worst_account(everyones(totals, group), config.privacy.cap),
        "notes": [*o.plan.notes, *_notes(parts, run)],
        "not_covered": [*NOT_COVERED, ARITHMETIC[config.privacy.noise.arithmetic]],
        "public_constants": [
            {"node": i, "records": node.records, "rate": node.rate, "lot": node.lot, "weight": node.weight}
            for i, node in enumerate(o.plan.nodes)
        ],
        "draws": draws,
        "ledger_heads": group.join([heads[i] for i in group.nodes]),
        "versions": versions(),
    }


def _notes(parts: Parts, run: Run) -> list[str]:
    notes = []
    if parts.private_hold_out:
        notes.append(f"The hold-out is {NOT_PUBLIC}.")
    if run.lost_draws:
        notes.append(
            f"The run was stopped and continued; {run.lost_draws} draws of its nodes were spent and not used."
        )
    return notes
