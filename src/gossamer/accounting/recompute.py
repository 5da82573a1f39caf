"""ε from the ledgers alone: the events on file, priced again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.accounting.alternatives import Sharing, Spent, by_observer, sharing
from gossamer.accounting.chain import LedgerError
from gossamer.accounting.ledger import NodeGroup, read_groups
from gossamer.accounting.observers import EVERYONE, Observer, against_all
from gossamer.accounting.passes import Counted
from gossamer.accounting.proven import Proven, proven
from gossamer.accounting.releases import (
    ADJACENCIES,
    Event,
    Release,
    collate,
    of_several_runs,
    on_several_nodes,
    remember_listed,
)

MOST_COPIES = 1_000_000  # as many as there may be nodes


@dataclass(frozen=True)
class NodeProof:
    node: int
    header: dict[str, Any]
    draws: int
    proven: Proven
    observer: Observer  # whom it holds against
    spent: Spent  # what was priced; the same object for nodes that did the same
    path: Path  # of its ledger
    head: str  # the hash of the last line there


def recompute(
    directory: Path, nodes: Iterable[int] | None = None, *, observer: Observer = EVERYONE
) -> list[NodeProof]:
    """Verify the chains of these nodes (of all) and price their events; equal histories are priced once."""
    priced: dict[tuple[Any, ...], tuple[Proven, Spent]] = {}
    proofs = []
    found = read_groups(directory, nodes)
    before: tuple[list[Event], tuple[Counted, ...]] = ([], ())
    copied = _of_copies(directory, found)
    for one in found:
        header, events = _checked(one.path, one.header), one.events
        _remember_secrets(one.path, header, events)
        # Most nodes do what the one before did, and its events are the very same objects: quick to compare.
        spent_on = copied.get(header.get("copies", 1), events)
        history = before[1] if spent_on and spent_on == before[0] else tuple(collate(spent_on))
        before = spent_on, history
        key = (history, header["delta"], header["adjacency"])
        if key not in priced:
            price = proven(history, header["delta"], header["adjacency"], observer=observer)
            priced[key] = price, Spent(history, header["delta"], header["adjacency"], price.epsilon)
        whom = (
            against_all(release.planned_for for release, _ in history) if observer is EVERYONE else observer
        )
        price, spent = priced[key]
        proofs += [
            NodeProof(node, header, len(events), price, whom, spent, one.path, one.head) for node in one.nodes
        ]
    return sorted(proofs, key=lambda proof: proof.node)


def shared_noise(proofs: Sequence[NodeProof]) -> Sharing | None:
    """How these nodes share noise, by what their ledgers say of it."""
    if all(proof.observer.colluders is None for proof in proofs):
        return None
    different = dict.fromkeys(proof.spent for proof in proofs)
    return sharing(release for spent in different for release, _ in spent.history)


def by_observer_of(proofs: Sequence[NodeProof]) -> dict[str, Any]:
    """`epsilon_by_observer` and `epsilon_by_colluders`: of the worst node, from what the ledgers say."""
    shared = shared_noise(proofs)
    return by_observer(
        shared,
        shared.worst(proof.spent for proof in proofs) if shared else [],
        planned=against_all(proof.observer for proof in proofs),
        epsilon=max(proof.proven.epsilon for proof in proofs),
        delta=max(proof.header["delta"] for proof in proofs),
        adjacency=proofs[0].header["adjacency"],
        unit=proofs[0].header["unit"],
    )


def worst_epsilon(
    directories: Sequence[Path], adjacency: str | None = None, *, observer: Observer = EVERYONE
) -> float:
    """The worst node's ε over runs on the same records, all releases composed; `adjacency`: another than theirs."""
    runs: dict[int, list[Sequence[Event]]] = {}
    headers: dict[int, dict[str, Any]] = {}
    for directory in directories:
        found = read_groups(directory)
        copied = _of_copies(directory, found)
        for one in found:
            header = _checked(one.path, one.header)
            _remember_secrets(one.path, header, one.events)
            spent_on = copied.get(header.get("copies", 1), one.events)
            for node in one.nodes:
                runs.setdefault(node, []).append(spent_on)
                headers[node] = header
    priced: dict[tuple[Any, ...], float] = {}
    seen: dict[tuple[Any, ...], float] = {}  # by the very same lists, which nodes that did the same share
    for node, own_runs in runs.items():
        delta, relation = headers[node]["delta"], adjacency or headers[node]["adjacency"]
        same = (*map(id, own_runs), delta, relation)
        if same in seen:
            continue
        releases = of_several_runs(own_runs)
        key = (tuple(collate(releases)), delta, relation)
        if key not in priced:
            priced[key] = proven(releases, delta, relation, observer=observer).epsilon
        seen[same] = priced[key]
    return max(priced.values())


def _of_copies(directory: Path, found: Sequence[NodeGroup]) -> dict[int, list[Event]]:
    """Copies k → what the k nodes that hold a record release together, at most; nothing where every record is alone.

    Nodes may have released different things (who writes when is their own choice). Whatever one did is among what all
    of them did, each kind as often as the node that did it most: so many times that, k nodes release no more.
    """
    asked = {_checked(one.path, one.header).get("copies", 1) for one in found}
    if asked <= {1}:
        return {}
    # Ledgers of nodes that are not asked about count, too: a copy may be theirs.
    most: dict[Release, int] = {}
    for group in read_groups(directory):
        for one, count in collate(group.events):
            most[one] = max(most.get(one, 0), count)
    together = [Event(draw, one) for draw, (one, count) in enumerate(most.items()) for _ in range(count)]
    return {copies: on_several_nodes(together, copies) for copies in asked - {1}}


def _remember_secrets(path: Path, header: dict[str, Any], events: Sequence[Event]) -> None:
    """Events name the graph of secrets by its digest; where it is one of the user's own, the first line has it."""
    try:
        remember_listed(header.get("secrets"), [event.release for event in events[:1]])
    except ValueError as error:
        raise LedgerError(f"{path} line 1 is damaged: its 'secrets' {error}") from None


def _checked(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """A ledger's first line with all that its events are priced by."""
    delta = header.get("delta")
    if not isinstance(delta, float) or not 0 < delta < 1:
        raise LedgerError(f"{path} line 1 is damaged: its 'delta' is no number between 0 and 1")
    if header.get("adjacency") not in ADJACENCIES:
        raise LedgerError(f"{path} line 1 is damaged: its 'adjacency' is none of {', '.join(ADJACENCIES)}")
    copies = header.get("copies", 1)
    if type(copies) is not int or not 1 <= copies <= MOST_COPIES:
        raise LedgerError(f"{path} line 1 is damaged: its 'copies' is no whole number from 1 on")
    for key in ("unit", "noise"):
        if not isinstance(header.get(key), str):
            raise LedgerError(f"{path} line 1 is damaged: its {key!r} is missing or no text")
    return header
