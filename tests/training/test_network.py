"""The certificate's figures about one node and an outsider are computed again, and a change is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.assemble import assemble
from gossamer.training.certificates import check_network
from gossamer.training.plan import Plan
from gossamer.training.run import execute

SHORT = {"nodes": 5, "rounds": 6, "evaluation.every": 6, "algorithm.lr": 1.0}


def trained(folder: Path, **changes: Any) -> Path:
    config = resolve(recipes.read("central-accuracy/digits"), {**SHORT, **changes})
    return execute(assemble(Plan.of(config)), out=folder).directory


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("network") / "run")


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def test_what_is_stated_agrees_with_the_ledgers(run: Path) -> None:
    certificate = json.loads((run / "certificate.json").read_text())
    network = certificate["network"]
    assert network["outsider"] <= network["worst_pair"]["epsilon"] <= certificate["epsilon_proven"]
    assert max(e for row in network["by_pair"] for e in row if e is not None) == pytest.approx(
        network["worst_pair"]["epsilon"], rel=1e-5
    )
    assert check_network(run) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n["worst_pair"].update(epsilon=0.1),
        lambda n: n.update(outsider=0.01),
        lambda n: n["by_pair"][0].__setitem__(1, 0.01),
        lambda n: n.update(by_pair=None),
        lambda n: n.update(outsider="less"),
    ],
)
def test_other_figures_are_noticed(run: Path, change: Any) -> None:
    certificate = json.loads((run / "certificate.json").read_text())
    change(certificate["network"])
    (run / "certificate.json").write_text(json.dumps(certificate))
    with expect_refusal(key="certificate.json", names="network"):
        check_network(run)


def test_without_its_configuration_it_is_said_to_be_as_stated(run: Path) -> None:
    (run / "config.toml").write_text("nodes = 5\n")
    assert "as the certificate states it" in (check_network(run) or "")


def test_runs_without_such_a_view_state_none(tmp_path: Path) -> None:
    for name, changes in (
        ("mixes", {"algorithm.mixes": 2}),
        ("sampled", {"privacy.sampling": {"kind": "poisson", "rate": 0.5}}),
    ):
        run = trained(tmp_path / name, **changes)
        assert json.loads((run / "certificate.json").read_text())["network"] is None
        assert check_network(run) is None
