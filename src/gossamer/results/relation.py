"""What a finished run proves under another relation between neighbouring data sets, from its ledgers alone."""

from __future__ import annotations

from pathlib import Path

from gossamer.accounting.recompute import worst_epsilon


def epsilon_under(run: Path, adjacency: str) -> float:
    """The worst node's ε."""
    return worst_epsilon([run / "ledger"], adjacency)
