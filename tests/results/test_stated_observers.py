"""Every figure by observer is held against the ledgers, signed or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.signed_runs import CHANGES, edit, relaid, unsigned, verdict

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute


@pytest.fixture(scope="module")
def made_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of four nodes that share noise, on full lots."""
    base = tmp_path_factory.mktemp("shared")
    changes = {**CHANGES, "nodes": 4, "privacy.noise.kind": "pairwise", "privacy.sampling": {"kind": "full"}}
    execute(assemble(Plan.of(resolve(recipes.read("quickstart"), changes))), out=base / "run")
    return base


@pytest.fixture
def shared_run(made_shared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_shared / "run", tmp_path / "shared")


def all_cheaper(c: dict[str, Any]) -> None:
    for point in c["epsilon_by_colluders"]:
        point["epsilon"] *= 0.9
    for line in c["epsilon_by_observer"]:
        line["epsilon"] *= 0.9


BY_OBSERVER: list[Callable[[dict[str, Any]], Any]] = [
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=c["epsilon_by_colluders"][2]["epsilon"]),
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=None),
    lambda c: c["epsilon_by_colluders"][0].update(epsilon="1"),
    lambda c: c["epsilon_by_colluders"][0].update(colluders=True),
    lambda c: c["epsilon_by_colluders"].pop(),
    lambda c: c["epsilon_by_colluders"].reverse(),
    lambda c: c["epsilon_by_colluders"].append({"colluders": 4, "epsilon": 9.0}),
    lambda c: c.update(epsilon_by_colluders=[]),
    lambda c: c.update(epsilon_by_colluders=[1, 2]),
    lambda c: c.pop("epsilon_by_colluders"),
    lambda c: c.pop("epsilon_by_observer"),
    lambda c: [c.pop(key) for key in ("epsilon_by_observer", "epsilon_by_colluders")],
    lambda c: c["epsilon_by_observer"].pop(),
    lambda c: c["epsilon_by_observer"][-1].update(epsilon=c["epsilon_by_observer"][-1]["epsilon"] * 0.999),
    lambda c: c["epsilon_by_observer"][-1].update(words="a neighbour"),
    lambda c: c["epsilon_by_observer"][-1].update(delta=1e-9),
    lambda c: c["epsilon_by_observer"][0].update(planned=True),
    all_cheaper,
]


@pytest.mark.parametrize("change", BY_OBSERVER)
def test_every_figure_by_observer_is_compared(
    shared_run: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    assert verdict(unsigned(shared_run)).certified
    edit(shared_run / "certificate.json", change)
    with pytest.raises(UserError, match="epsilon_by_"):
        verdict(shared_run)


def test_a_run_with_noise_of_each_nodes_own_has_one_line_or_none(run: Path) -> None:
    assert len(json.loads((run / "certificate.json").read_text())["epsilon_by_observer"]) == 1
    edit(unsigned(run) / "certificate.json", lambda c: c["epsilon_by_observer"][0].update(epsilon=0.1))
    with pytest.raises(UserError, match="epsilon_by_observer"):
        verdict(run)
    edit(
        run / "certificate.json", lambda c: [c.pop(f"epsilon_by_{key}") for key in ("observer", "colluders")]
    )
    assert verdict(run).certified  # from before it was stated


def test_where_ledgers_are_elsewhere_more_may_be_stated_and_never_less(shared_run: Path) -> None:
    def dearer(c: dict[str, Any]) -> None:
        c["epsilon_by_colluders"][3]["epsilon"] = c["epsilon_by_observer"][3]["epsilon"] = 99.0

    edit(unsigned(shared_run) / "certificate.json", dearer)
    with pytest.raises(UserError, match="epsilon_by_colluders, 3"):
        verdict(shared_run)
    edit(shared_run / "manifest.json", lambda m: m.update(ledgers_here=[[0, 1]]))
    relaid(shared_run, [range(2)])
    assert verdict(shared_run).elsewhere == (2, 3)
    edit(shared_run / "certificate.json", lambda c: c["epsilon_by_colluders"][3].update(epsilon=0.1))
    with pytest.raises(UserError, match="epsilon_by_colluders, 3"):
        verdict(shared_run)
