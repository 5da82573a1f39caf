"""What is shown of ledgers: every node of few, and of many those that are alike in one row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gossamer.accounting.observers import EVERYONE
from gossamer.results.ledger_table import ledger_summary, show_ledger
from gossamer.results.verify import Verdict


def proof(node: int, epsilon: float, because: str | None = None) -> Any:
    header = {"delta": 1e-5, "adjacency": "add-remove", "unit": "a record", "noise": "system"}
    return SimpleNamespace(
        node=node,
        draws=3,
        header=header,
        proven=SimpleNamespace(epsilon=epsilon, lower=epsilon / 2, because=because),
        observer=EVERYONE,
    )


def test_ledgers_are_summed_up_by_the_worst_node(capsys: pytest.CaptureFixture[str]) -> None:
    proofs = [proof(0, 0.5), proof(1, 1.5)]
    found = ledger_summary(proofs, Verdict(certified=False))
    assert (found["epsilon_proven"], found["nodes"], found["matches_certificate"]) == (1.5, 2, None)
    assert [line["epsilon"] for line in found["epsilon_by_observer"]] == [1.5]
    assert ledger_summary(proofs, Verdict(certified=True))["matches_certificate"] is True
    show_ledger(
        [*proofs, proof(2, float("inf"), "no noise")],
        Verdict(certified=False, unsigned_because="it is made up"),
    )
    out = capsys.readouterr().out
    assert "a cut tail would not show" in out
    assert "not signed: it is made up" in out
    elsewhere = Verdict(certified=True, elsewhere=(2, 3))
    assert ledger_summary(proofs, elsewhere)["matches_certificate"] is None
    assert ledger_summary(proofs, elsewhere)["as_stated_only"] == [2, 3]
    assert "not proven: no noise" in out
    assert "∞" in out


def test_of_many_nodes_those_that_are_alike_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    price = SimpleNamespace(epsilon=0.5, lower=0.25, because=None)
    proofs = [proof(i, 0.5) for i in range(1000)]
    for one in proofs:
        one.proven = price
    proofs[7] = proof(7, 1.5)
    show_ledger(proofs, Verdict(certified=True))
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert rows == ["0–6", "7", "8–999"]
    show_ledger([proof(i, float(i)) for i in range(1000)], Verdict(certified=True))
    assert "and 800 rows more: --json has all nodes" in capsys.readouterr().out
