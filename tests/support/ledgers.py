"""Ledgers for tests: written from lists of releases, and read back to compare runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.accounting.ledger import LedgerBook, ledgers_in, read_all
from gossamer.accounting.releases import Event, Release

HEADER = {"delta": 1e-5, "adjacency": "add-remove", "unit": "one record of one node", "noise": "system"}
OWN = ("version", "nodes", "run", "manifest")  # of the file, or of the run


def write_histories(run: Path, histories: Sequence[Sequence[Release]], **header: Any) -> Path:
    """The ledger of nodes 0, 1, … that made these releases, one per draw."""
    headers = {node: {**HEADER, **header} for node in range(len(histories))}
    with LedgerBook.create(run / "ledger.jsonl", headers, sync=False) as book:
        for node, releases in enumerate(histories):
            for draw, release in enumerate(releases):
                book.write([((node,), Event(draw, release))])
    return run


def resumed(run: Path, headers: Mapping[int, Mapping[str, Any]], **options: Any) -> LedgerBook:
    """The ledgers in a folder, opened again."""
    return LedgerBook.resume(ledgers_in(run), headers, sync=False, **options)


def histories(run: Path) -> dict[int, tuple[dict[str, Any], list[Event]]]:
    """node → (header, events), without the run's own name and manifest, however many processes wrote them."""
    return {
        node: ({key: value for key, value in header.items() if key not in OWN}, events)
        for node, (header, events) in read_all(run).items()
    }
