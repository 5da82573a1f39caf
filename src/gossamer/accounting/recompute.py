"""ε from the ledgers alone: the events on file, priced again."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.accounting import releases
from gossamer.accounting.alternatives import Sharing, Spent, by_observer, sharing
from gossamer.accounting.chain import MOST_NODES, LedgerError
from gossamer.accounting.ledger import NodeGroup, read_groups
from gossamer.accounting.observers import EVERYONE, Observer, against_all
from gossamer.accounting.proven import Proven, proven
from gossamer.accounting.releases import ADJACENCIES, Counted, Event, Release, collate


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
    before: tuple[list[Event], tuple[Counted, ...]] = ([], ())
    for one, events in _groups(directory, nodes):
        # Most nodes do what the one before did, and its events are the very same objects: quick to compare.
        history = before[1] if events and events == before[0] else tuple(collate(events))
        before = events, history
        terms = one.header["delta"], one.header["adjacency"]
        if (history, terms) not in priced:
            price = proven(history, *terms, observer=observer)
            priced[history, terms] = price, Spent(history, *terms, price.epsilon)
        price, spent = priced[history, terms]
        against = observer
        if observer is EVERYONE:
            against = against_all(release.planned_for for release, _ in history)
        proofs += [
            NodeProof(node, one.header, len(one.events), price, against, spent, one.path, one.head)
            for node in one.nodes
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


def worst_epsilon(directories: Sequence[Path], adjacency: str | None = None) -> float:
    """The worst node's ε over runs on the same records, all releases composed; `adjacency`: another than theirs."""
    runs: dict[int, list[list[Event]]] = {}
    terms: dict[int, tuple[float, str]] = {}
    for directory in directories:
        for one, events in _groups(directory):
            for node in one.nodes:
                runs.setdefault(node, []).append(events)
                terms[node] = one.header["delta"], adjacency or one.header["adjacency"]
    # Nodes that did the same share their lists: these are looked at once.
    different = {(*map(id, own), terms[node]): (own, terms[node]) for node, own in runs.items()}
    every = ((collate(releases.of_several_runs(own)), terms) for own, terms in different.values())
    histories = {(tuple(history), terms) for history, terms in every}
    return max(proven(history, *of_node).epsilon for history, of_node in histories)


def _groups(directory: Path, nodes: Iterable[int] | None = None) -> list[tuple[NodeGroup, list[Event]]]:
    """The nodes of a directory by what they did, headers checked, each with all events that one record is in.

    Where copies of a record are on k nodes, these are what the k nodes release together, at most. Nodes may have
    released different things (who writes when is their own choice). Whatever one did is among what all of them did,
    each kind as often as the node that did it most: so many times that, k nodes release no more.
    """
    groups = read_groups(directory, nodes)
    for one in groups:
        _check_header(one)
    copied: dict[int, list[Event]] = {}
    if copies := {one.header.get("copies", 1) for one in groups} - {1}:
        # Ledgers of nodes that are not asked about count, too: a copy may be theirs.
        most: Counter[Release] = Counter()
        for one in read_groups(directory):
            most |= Counter(dict(collate(one.events)))
        together = [Event(draw, one) for draw, one in enumerate(most.elements())]
        copied = {k: releases.on_several_nodes(together, k) for k in copies}
    return [(one, copied.get(one.header.get("copies", 1), one.events)) for one in groups]


def _check_header(group: NodeGroup) -> None:
    """Refuse a first line without all that its events are priced by; remember the graph of secrets that it lists."""
    delta, copies = group.header.get("delta"), group.header.get("copies", 1)
    texts = [key for key in ("unit", "noise") if not isinstance(group.header.get(key), str)]
    problem = None
    if not isinstance(delta, float) or not 0 < delta < 1:
        problem = "'delta' is no number between 0 and 1"
    elif group.header.get("adjacency") not in ADJACENCIES:
        problem = f"'adjacency' is none of {', '.join(ADJACENCIES)}"
    elif type(copies) is not int or not 1 <= copies <= MOST_NODES:
        problem = "'copies' is no whole number from 1 on"
    elif texts:
        problem = f"{texts[0]!r} is missing or no text"
    try:
        releases.remember_listed(group.header.get("secrets"), [event.release for event in group.events[:1]])
    except ValueError as error:
        problem = problem or f"'secrets' {error}"
    if problem:
        raise LedgerError(f"{group.path} line 1 is damaged: its {problem}")
