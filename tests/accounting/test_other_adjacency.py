"""A finished run under the other relation, from its ledgers alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.releases import gaussian

from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.ledger import LedgerBook
from gossamer.accounting.recompute import worst_epsilon
from gossamer.accounting.releases import Event


def test_exchanging_a_record_moves_twice_as_much_as_removing_it(tmp_path: Path) -> None:
    headers = {
        i: {"delta": 1e-5, "adjacency": "add-remove", "unit": "a record", "noise": "system"} for i in (0, 1)
    }
    book = LedgerBook.create(tmp_path / "ledger", headers, sync=False)
    for node, sigma in ((0, 20.0), (1, 10.0)):
        for step in range(9):
            book.append(node, Event(step=step, release=gaussian(sigma, sampling="full", rate=1.0)))
    assert worst_epsilon([tmp_path / "ledger"], "add-remove") == pytest.approx(
        gdp_epsilon(3 / 10, 1e-5), rel=1e-6
    )
    assert worst_epsilon([tmp_path / "ledger"], "replace-one") == pytest.approx(
        gdp_epsilon(6 / 10, 1e-5), rel=1e-6
    )
