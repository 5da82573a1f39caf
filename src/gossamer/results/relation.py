"""What a finished run proves under another relation between neighbouring data sets, from its ledgers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.accounting.events import collate
from gossamer.accounting.ledger import read_all
from gossamer.accounting.proven import proven


def epsilon_under(run: Path, adjacency: str) -> float:
    """The worst node's ε; nodes with equal histories are priced once."""
    priced: dict[tuple[Any, ...], float] = {}
    for header, events in read_all(run / "ledger").values():
        key = (tuple(collate(events)), header["delta"])
        if key not in priced:
            priced[key] = proven(events, header["delta"], adjacency).epsilon
    return max(priced.values())
