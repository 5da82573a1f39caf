"""What a certificate states by observer, beside what the ledgers say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gossamer.accounting.alternatives import MOST_POINTS, Sharing, rows
from gossamer.accounting.observers import against_all
from gossamer.accounting.recompute import NodeProof, shared_noise
from gossamer.errors import UserError


class Figures(Protocol):
    """A certificate's figures, and the sentences where they are not what they should be."""

    stated: Mapping[str, Any]

    def damaged(self, key: str) -> UserError: ...

    def entry(self, key: str, node: int) -> dict[str, Any]: ...

    def epsilon(self, key: str, value: Any) -> float: ...

    def same(self, key: str, found: Any, stated: Any) -> None: ...

    def close(self, key: str, found: float | None, stated: Any) -> None: ...


def compare_by_observer(c: Figures, proofs: Sequence[NodeProof], elsewhere: Sequence[int]) -> None:
    """The curve over colluding nodes against the ledgers, and the lines by observer against the curve."""
    shared = shared_noise(proofs)
    if shared is None and "epsilon_by_observer" not in c.stated:
        return  # of a run from before it was stated
    curve = c.stated.get("epsilon_by_colluders")
    if not isinstance(curve, list) or not all(isinstance(point, dict) for point in curve):
        raise c.damaged("epsilon_by_colluders")
    figures = {point.get("colluders"): point.get("epsilon") for point in curve}
    if shared is None:
        c.same("epsilon_by_colluders", [], curve)
    else:
        _curve(c, shared, [point.get("colluders") for point in curve], figures, proofs, elsewhere)
    due = rows(
        shared,
        figures,
        planned=against_all(proof.observer for proof in proofs),
        epsilon=c.stated["epsilon_proven"],
        delta=c.stated["delta"],
        adjacency=c.stated["adjacency"],
        unit=c.stated["unit"],
    )
    lines = c.stated.get("epsilon_by_observer")
    if not isinstance(lines, list) or len(lines) != len(due):
        raise c.damaged("epsilon_by_observer")
    for i, line in enumerate(due):
        entry = c.entry("epsilon_by_observer", i)
        for key, value in line.items():
            c.same(f"epsilon_by_observer[{i}].{key}", value, entry.get(key))


def _curve(
    c: Figures,
    shared: Sharing,
    counts: Sequence[Any],
    figures: Mapping[Any, Any],
    proofs: Sequence[NodeProof],
    elsewhere: Sequence[int],
) -> None:
    # Which numbers of colluders have a figure is up to the program that wrote it, but for those that are told of.
    fine = all(type(q) is int and 0 <= q < shared.nodes for q in counts) and list(counts) == sorted(
        set(counts)
    )
    if not fine or len(counts) > MOST_POINTS or not set(shared.told) <= set(counts):
        raise c.damaged("epsilon_by_colluders")
    found = replace(shared, at=tuple(counts)).worst(proof.spent for proof in proofs)
    for q, figure in zip(counts, found, strict=True):
        stated = c.epsilon("epsilon_by_colluders", figures[q])
        if not (elsewhere and stated > figure):  # a ledger that is elsewhere may say more
            c.close(f"epsilon_by_colluders, {q}", figure, stated)
    c.same("epsilon_by_colluders, as planned", c.stated["epsilon_proven"], figures[shared.planned])
