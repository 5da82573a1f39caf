"""`gossamer.audit`, as a notebook calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.certificates import audit, certificate
from tests.support.unsafe_modules import Head
from torch import nn

import gossamer
from gossamer.auditing.api import Audit
from gossamer.errors import UserError

SHORT = {"rounds": 4, "nodes": 2, "data.train_rows": 40, "privacy.noise.source": "seeded"}


def test_it_stands_beside_run_and_plan_and_takes_a_module(tmp_path: Path) -> None:
    found = gossamer.audit("quickstart", SHORT, module=Head(), canary="sensitivity", runs=40, out=tmp_path / "a")
    assert "audit" in gossamer.__all__
    assert found.violation is False
    assert found["violation"] is False
    assert found.epsilon_audited is None
    assert found.directory == tmp_path / "a"
    assert found["audit"]["sensitivity"]["tried"] <= 40
    assert not found["audit"]["sensitivity"]["broken"]
    certificate = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert certificate["audit"]["sensitivity"]["movements"]


@pytest.mark.slow
def test_a_module_is_searched_beside_the_coins(tmp_path: Path) -> None:
    found = gossamer.audit("quickstart", SHORT, module=Head(), runs=1, out=tmp_path / "a")
    assert found["audit"]["coins"] > 0
    assert found["epsilon_audited"] is not None
    assert found["audit"]["sensitivity"]["tried"] > 100
    without = gossamer.audit("quickstart", SHORT, runs=1, out=tmp_path / "b")
    assert "sensitivity" not in without["audit"]


@pytest.mark.slow
def test_a_run_with_adapters_is_audited(tmp_path: Path) -> None:
    changes = {**SHORT, "model.kind": "mlp", "model.hidden": [8], "lora.rank": 2}
    found = gossamer.audit("quickstart", changes, runs=1, out=tmp_path / "a")
    assert found["audit"]["coins"] > 0
    assert found["epsilon_audited"] is not None
    assert found.violation is False


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        gossamer.audit("quickstart", SHORT, module=nn.Linear(3, 10), canary="sensitivity", out=tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_it_shows_its_verdict_with_all_that_an_epsilon_needs() -> None:
    found = Audit(certificate(epsilon_audited=0.7, violation=False, audit=audit(), audit_dir="a/<x>"))
    for text in (repr(found), found._repr_html_()):
        for piece in (
            "No violation found",
            "0.7",
            "δ = 1e-05",
            "add-remove",
            "unit: one record of one node",
            "everyone",
        ):
            assert piece in text
    assert "<x>" not in found._repr_html_()
    assert "x &lt; y" in found._repr_html_()  # a note
    assert "<svg" in found._repr_html_()
    assert "<script" not in found._repr_html_()
