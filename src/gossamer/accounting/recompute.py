"""ε from the ledgers alone: what happened, as written down, priced anew."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.accounting.ledger import node_path, read, read_all, verify
from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.proven import Proven, proven
from gossamer.accounting.releases import Event, Release, collate, of_several_runs


@dataclass(frozen=True)
class NodeProof:
    node: int
    header: dict[str, Any]
    draws: int
    proven: Proven


def recompute(
    directory: Path, nodes: Iterable[int] | None = None, *, observer: Observer = EVERYONE
) -> list[NodeProof]:
    """Verify the chains of these nodes (of all) and price their events; equal histories are priced once."""
    priced: dict[tuple[Any, ...], Proven] = {}
    proofs = []
    found = read_all(directory) if nodes is None else {i: read(node_path(directory, i)) for i in nodes}
    before: tuple[list[Event], tuple[tuple[Release, int], ...]] = ([], ())
    for node, (header, events) in sorted(found.items()):
        # Most nodes do what the one before did, and its events are the very same objects: quick to compare.
        history = before[1] if events and events == before[0] else tuple(collate(events))
        before = events, history
        key = (history, header["delta"], header["adjacency"])
        if key not in priced:
            priced[key] = proven(events, header["delta"], header["adjacency"], observer=observer)
        proofs.append(NodeProof(node, header, len(events), priced[key]))
    return proofs


def worst_epsilon(
    directories: Sequence[Path], adjacency: str | None = None, *, observer: Observer = EVERYONE
) -> float:
    """The worst node's ε over runs on the same records, all releases composed; `adjacency`: another than theirs."""
    runs: dict[int, list[Sequence[Event]]] = {}
    headers: dict[int, dict[str, Any]] = {}
    for directory in directories:
        for node, (header, own) in read_all(directory).items():
            runs.setdefault(node, []).append(own)
            headers[node] = header
    priced: dict[tuple[Any, ...], float] = {}
    for node, own_runs in runs.items():
        releases = of_several_runs(own_runs)
        delta, relation = headers[node]["delta"], adjacency or headers[node]["adjacency"]
        key = (tuple(collate(releases)), delta, relation)
        if key not in priced:
            priced[key] = proven(releases, delta, relation, observer=observer).epsilon
    return max(priced.values())


def check_certificate(directory: Path, certificate: Path, nodes: Iterable[int] | None = None) -> bool:
    """Compare heads and counts with the certificate beside the ledgers; False where there is none.

    The chain shows a changed, missing or reordered line; only the certificate shows a cut tail. `nodes` are those whose
    ledgers must be here: all of them, unless the run was spread over machines.
    """
    if not certificate.is_file():
        return False
    stated = json.loads(certificate.read_text(encoding="utf-8"))
    for node in range(len(stated["draws"])) if nodes is None else nodes:
        verify(node_path(directory, node), head=stated["ledger_heads"][node], count=stated["draws"][node])
    return True
