"""The certificate of a run with many nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.accounting.ledger import LedgerBook
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.run.assemble import assemble
from gossamer.run.outline import outline
from gossamer.run.train import execute


def test_the_ledgers_heads_are_collected_once_and_not_once_for_each_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    collect = LedgerBook.heads

    def counted(book: LedgerBook) -> dict[int, str]:
        calls.append(book)
        return collect(book)

    monkeypatch.setattr(LedgerBook, "heads", counted)
    found = []
    for nodes in (3, 12):
        changes = {"nodes": nodes, "rounds": 1, "privacy.claim": "none", "privacy.noise.source": "seeded"}
        outcome = execute(
            assemble(outline(resolve(recipes.read("quickstart"), changes))), out=tmp_path / str(nodes)
        )
        assert outcome.result["nodes"] == nodes
        found.append(len(calls))
        calls.clear()
    assert found[0] == found[1]
