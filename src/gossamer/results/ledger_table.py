"""What `plan --ledger` shows: ε of every node, recomputed from its ledger, and what could be checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from gossamer.accounting.observers import against_all
from gossamer.accounting.recompute import NodeProof, by_observer_of
from gossamer.results.certificate import epsilon_text
from gossamer.results.console import MOST_ROWS, show_observers
from gossamer.results.terminal import terminal
from gossamer.results.verify import Verdict


def ledger_summary(proofs: list[NodeProof], verdict: Verdict) -> dict[str, Any]:
    """The JSON object of `plan --ledger`."""
    worst = max(proofs, key=lambda p: p.proven.epsilon)
    return {
        "epsilon_claimed": None,
        "epsilon_proven": worst.proven.epsilon,
        "epsilon_proven_lower": worst.proven.lower,
        "epsilon_audited": None,
        "violation": None,
        "epsilon_by_node": [{"proven": p.proven.epsilon, "draws": p.draws} for p in proofs],
        "not_proven_because": worst.proven.because,
        "delta": max(p.header["delta"] for p in proofs),
        "adjacency": worst.header["adjacency"],
        "unit": worst.header["unit"],
        "observer": against_all(p.observer for p in proofs).describe(),
        **by_observer_of(proofs),
        "nodes": len(proofs),
        "noise": worst.header["noise"],
        "matches_certificate": (verdict.certified and not verdict.elsewhere) or None,
        "as_stated_only": list(verdict.elsewhere),
        "signed": verdict.signed,
        "anchored": verdict.anchored,
        "events_behind_the_last_seal": verdict.behind,
    }


def show_ledger(proofs: list[NodeProof], verdict: Verdict) -> None:
    console = terminal()
    table = Table("node", "draws", "proven ε", "at least", "δ", "adjacency", "noise", box=None)
    for label, p in _alike(proofs)[:MOST_ROWS]:
        table.add_row(
            label, str(p.draws), epsilon_text(p.proven.epsilon), epsilon_text(p.proven.lower),
            f"{p.header['delta']:g}", p.header["adjacency"], p.header["noise"],
        )  # fmt: skip
    console.print(table)
    if (more := len(_alike(proofs)) - MOST_ROWS) > 0:
        console.print(f"and {more:,} rows more: --json has all nodes", soft_wrap=True)
    observer = against_all(p.observer for p in proofs).describe()
    console.print(f"unit: {proofs[0].header['unit']}; observer: {observer}", soft_wrap=True)
    show_observers(by_observer_of(proofs), console)
    for reason in sorted({p.proven.because for p in proofs if p.proven.because}):
        console.print(f"not proven: {reason}", soft_wrap=True)
    for sentence in verdict.sentences():
        console.print(sentence, soft_wrap=True)


def _alike(proofs: Sequence[NodeProof]) -> list[tuple[str, NodeProof]]:
    """A row per node; of many, neighbours with the same draws and the same figures in one."""

    def figures(p: NodeProof) -> tuple[Any, ...]:
        apart = p.node if len(proofs) <= MOST_ROWS else None
        return apart, p.draws, p.proven, p.header["delta"], p.header["adjacency"], p.header["noise"]

    groups = [list(own) for _, own in groupby(proofs, key=figures)]
    return [(f"{own[0].node}–{own[-1].node}" if len(own) > 1 else str(own[0].node), own[0]) for own in groups]
