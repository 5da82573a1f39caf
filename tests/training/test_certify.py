"""What a certificate says of nodes whose ledgers are on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.results.certificate import STATED_ELSEWHERE as STATED
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import Run, execute


class Patched(Alone):
    """Nodes 2 and 3 are another machine's, whose rank says of them what it likes."""

    def __init__(self, nodes: int):
        super().__init__(nodes)
        self.blocks = [range(2), range(2, nodes)]

    def join(self, items: Any, *, per_node: bool = False) -> Any:
        said = list(items)
        if said == ["0"]:
            return ["0", "1"]
        if per_node and isinstance(said[0], dict) and "proven" in said[0]:
            for node, epsilon in ((2, 0.001), (3, 1e3)):
                said[node] = {**said[node], "proven": {**said[node]["proven"], "epsilon": epsilon}}
        return said

    def whose(self, node: int) -> str:
        return "rank 1 (nodes 2–3)"


def finished_by(o: Plan, group: Alone, folder: Path) -> dict[str, Any]:
    """The certificate of a run whose processes answer as `group` does once it is trained."""
    run = Run.begin(assemble(o), folder)
    run.train()
    run.group = group
    certificate = run.finish().certificate
    run.close()
    return certificate


def test_what_a_rank_elsewhere_states_is_marked_and_never_less_than_planned(tmp_path: Path) -> None:
    changes = {"nodes": 4, "rounds": 2, "privacy.claim": "none", "privacy.noise.multiplier": 3.0}
    o = Plan.of(resolve(recipes.read("quickstart"), changes))
    found = finished_by(o, Patched(4), tmp_path / "r")
    by_node, planned = found["epsilon_by_node"], [node.proven.epsilon for node in o.privacy.nodes]
    assert [entry.get("stated_by") for entry in by_node] == [None, None, *["rank 1 (nodes 2–3)"] * 2]
    assert by_node[2]["proven"] == planned[2] > 0.1
    assert by_node[3]["proven"] == found["epsilon_proven"] == 1e3
    assert STATED in found["notes"]
    alone = execute(assemble(o), out=tmp_path / "alone").certificate
    assert all("stated_by" not in entry for entry in alone["epsilon_by_node"])
    assert STATED not in alone["notes"]
    assert alone["epsilon_by_node"][0]["proven"] == by_node[0]["proven"]


class Bold(Patched):
    """Whose other machine says next to nothing of its ε against more colluders, too."""

    def join(self, items: Any, *, per_node: bool = False) -> Any:
        said = super().join(items, per_node=per_node)
        if per_node and isinstance(said[0], dict) and "curve" in said[0]:
            said[2:] = [{**one, "curve": [0.001] * len(one["curve"])} for one in said[2:]]
        return said


def test_against_more_colluders_too_nobody_states_less_than_was_planned(tmp_path: Path) -> None:
    changes = {
        "nodes": 4, "rounds": 2, "privacy.claim": "none", "privacy.noise.multiplier": 3.0,
        "privacy.noise.kind": "pairwise", "privacy.sampling": {"kind": "full"},
    }  # fmt: skip
    o = Plan.of(resolve(recipes.read("quickstart"), changes))
    alone = execute(assemble(o), out=tmp_path / "alone").certificate
    curve = [point["epsilon"] for point in alone["epsilon_by_colluders"]]
    assert curve == sorted(curve)
    assert curve[1] == alone["epsilon_proven"]
    assert curve == pytest.approx([p["epsilon"] for p in o.privacy.by_observer()["epsilon_by_colluders"]])
    bold = finished_by(o, Bold(4), tmp_path / "bold")
    stated = [point["epsilon"] for point in bold["epsilon_by_colluders"]]
    assert stated[1] == bold["epsilon_proven"] == 1e3  # of node 3, by its rank's own word
    assert stated[0] == pytest.approx(curve[0])
    assert stated[2:] == [1e3, 1e3]
