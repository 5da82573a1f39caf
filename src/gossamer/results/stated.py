"""Every figure that a certificate states, beside what the ledgers say of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.accounting.ledger import compare_end
from gossamer.accounting.observers import against_all
from gossamer.accounting.proven import proven as price
from gossamer.accounting.recompute import NodeProof
from gossamer.accounting.releases import Release, release
from gossamer.errors import UserError
from gossamer.results.certificate import SEEDED
from gossamer.results.rundir import ledgers_here
from gossamer.results.stated_observers import compare_by_observer

_BELOW = 1e-6  # relative: another machine's rounding
_ABOVE = 1e-2  # relative: an accountant that has become a little sharper since


def compare_figures(
    run: Path,
    certificate: Mapping[str, Any],
    manifest: Mapping[str, Any] | None,
    proofs: Sequence[NodeProof],
) -> tuple[int, ...]:
    """Every stated figure against the ledgers; the nodes whose ledgers lie elsewhere come back."""
    c = _Stated(run / "certificate.json", certificate)
    n = c.length("draws", "ledger_heads", "epsilon_by_node", "public_constants")
    stated = [range(n)] if manifest is None or "ledgers_here" not in manifest else ledgers_here(manifest)
    here = sorted({node for nodes in stated for node in nodes})
    if not here or here[-1] >= n:
        raise UserError(f"{run / 'manifest.json'} is damaged: its 'ledgers_here' names no node of the run.")
    by_node = {proof.node: proof for proof in proofs}
    for node in here:
        if node not in by_node:
            raise UserError(f"{run} has no ledger of node {node}, and the certificate is about it.")
        own, head, count = by_node[node], certificate["ledger_heads"][node], certificate["draws"][node]
        compare_end(own.path, own.draws, own.head, certified_head=head, certified=count)
        _node(c, node, own)
    if strange := sorted(set(by_node) - set(here)):
        raise UserError(
            f"{by_node[strange[0]].path} is of no node whose ledger this run keeps here; remove it."
        )
    elsewhere = tuple(sorted(set(range(n)) - set(here)))
    c.same("observer", against_all(p.observer for p in proofs).describe(), certificate["observer"])
    deltas = [by_node[node].header["delta"] for node in here]
    if certificate["delta"] != max(deltas) and not (elsewhere and c.number("delta") > max(deltas)):
        raise c.differs("delta", certificate["delta"], max(deltas))
    proven = [
        c.epsilon(f"epsilon_by_node[{i}].proven", c.entry("epsilon_by_node", i).get("proven"))
        for i in range(n)
    ]
    c.same("epsilon_proven", max(proven), c.epsilon("epsilon_proven", certificate["epsilon_proven"]))
    claims = [c.entry("epsilon_by_node", i).get("claimed") for i in range(n)]
    known = [claim for claim in claims if claim is not None]
    c.same("epsilon_claimed", max(known) if known else None, certificate["epsilon_claimed"])
    if (certificate["not_proven_because"] is None) != math.isfinite(max(proven)):
        raise c.differs(
            "not_proven_because", certificate["not_proven_because"], "a reason where ε = ∞, only there"
        )
    worst = max(proofs, key=lambda p: p.proven.epsilon)
    if not elsewhere:
        c.near("epsilon_proven_lower", worst.proven.lower, certificate["epsilon_proven_lower"])
        c.same("not_proven_because", worst.proven.because, certificate["not_proven_because"])
    compare_by_observer(c, proofs, elsewhere)
    if certificate.get("preprocessing") is not None:
        _before(c, n, by_node)
    return elsewhere


def _before(c: _Stated, n: int, by_node: Mapping[int, NodeProof]) -> None:
    """What is said to have come before the first round is in the ledgers here, and costs what is said."""
    entry, adjacency = c.stated["preprocessing"], c.stated["adjacency"]
    try:
        of_nodes = [stated_releases(entry, node, adjacency) for node in range(n)]
        said = c.epsilon("preprocessing.epsilon", entry["epsilon"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise c.damaged("preprocessing") from None
    for node, proof in by_node.items():
        found = {(one.kind, one.noise_multiplier) for one, _ in proof.spent.history}
        for one in of_nodes[node]:
            if (one.kind, one.noise_multiplier) not in found:
                raise c.differs(f"preprocessing of node {node}", one.noise_multiplier, "no such release")
    alone = [
        price(of_nodes[node], proof.header["delta"], adjacency).epsilon for node, proof in by_node.items()
    ]
    if said < max(alone) * (1 - _BELOW):
        raise c.differs("preprocessing.epsilon", said, max(alone))


def _node(c: _Stated, node: int, proof: NodeProof) -> None:
    header, entry = proof.header, c.entry("epsilon_by_node", node)
    c.close(f"epsilon_by_node[{node}].proven", proof.proven.epsilon, c.epsilon("proven", entry.get("proven")))
    for key in ("adjacency", "unit"):
        c.same(key, header[key], c.stated[key])
    seeded = header["noise"] == SEEDED
    c.same("stamp", SEEDED if seeded else None, c.stated["stamp"])
    c.same("noise_source", "seeded" if seeded else "system", c.stated["noise_source"])
    public = c.entry("public_constants", node)
    for key, value in header.get("public", {}).items():
        c.same(f"public_constants[{node}].{key}", value, public.get(key))


class _Stated:
    """A certificate's figures beside what they should be."""

    def __init__(self, path: Path, stated: Mapping[str, Any]):
        self.path, self.stated = path, stated

    def damaged(self, key: str) -> UserError:
        return UserError(f"{self.path} is damaged: its {key!r} is not what a certificate has there.")

    def differs(self, key: str, stated: Any, found: Any) -> UserError:
        return UserError(f"{self.path} states {key} = {stated!r:.60} where the ledgers say {found!r:.60}.")

    def length(self, *keys: str) -> int:
        """Of lists with an entry per node."""
        for key in keys:
            if not isinstance(self.stated[key], list) or len(self.stated[key]) != len(self.stated[keys[0]]):
                raise self.damaged(key)
        return len(self.stated[keys[0]])

    def entry(self, key: str, node: int) -> dict[str, Any]:
        found = self.stated[key][node]
        if not isinstance(found, dict):
            raise self.damaged(f"{key}[{node}]")
        return found

    def number(self, key: str) -> float:
        found = self.stated[key]
        if type(found) not in (int, float):
            raise self.damaged(key)
        return float(found)

    def epsilon(self, key: str, value: Any) -> float:
        """JSON has no infinity."""
        if value is None:
            return math.inf
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.damaged(key)
        return float(value)

    def same(self, key: str, found: Any, stated: Any) -> None:
        if type(found) is not type(stated) and not {type(found), type(stated)} <= {int, float}:
            raise self.differs(key, stated, found)
        if found != stated:
            raise self.differs(key, stated, found)

    def close(self, key: str, found: float | None, stated: Any) -> None:
        """Never below what was found; above it only where an earlier program proved a little more."""
        if found is None or stated is None or math.isinf(found):
            self.same(key, found, stated)
            return
        if type(stated) not in (int, float) or not (
            found * (1 - _BELOW) - 1e-12 <= stated <= found * (1 + _ABOVE) + 1e-12
        ):
            raise self.differs(key, stated, found)

    def near(self, key: str, found: float | None, stated: Any) -> None:
        """Of a lower bound: below what was found where an earlier program was less sharp, above it never."""
        if found is None or stated is None:
            self.same(key, found, stated)
        elif type(stated) not in (int, float) or not found * (1 - _ABOVE) <= stated <= found * (1 + _BELOW):
            raise self.differs(key, stated, found)


def stated_releases(entry: Mapping[str, Any], node: int, adjacency: str) -> list[Release]:
    """What a certificate says that a node released: to be found in its ledger."""
    found = []
    for one in entry["released"]:
        sigma = float(one["noise_multiplier"][node])
        found.append(
            release(
                str(one["kind"]), sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency
            )
        )
    return found
