"""A ledger of five events."""

import pytest
from tests.support.releases import event

from gossamer.accounting.ledger import Ledger


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "node-000.jsonl"
    with Ledger.create(path, {"node": 0, "delta": 1e-5}, sync=True) as book:
        for step in range(5):
            book.append(event(step, sigma=1.0 + step / 3))
    return path
