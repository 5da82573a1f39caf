"""The command as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.certificates import audit as coins
from tests.support.certificates import dated
from tests.support.refusals import assert_names
from tests.support.unsafe_modules import HandMadeSum, Head, MeanOfTheLot

from gossamer.auditing.api import AuditRequest, add_to_run
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.methods.base import per_sample_loss

SHORT = ["--set", "rounds=6", "--runs", "1"]


def test_audit_ends_with_the_keys_of_a_run(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("audit", "quickstart", "--json", *SHORT, "--out", "a")
    assert code == 0
    found = json.loads(out.strip().splitlines()[-1])
    for key in (
        "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "delta", "adjacency", "observer", "nodes",
        "rounds", "epsilon_by_node", "not_proven_because", "unit",
    ):  # fmt: skip
        assert key in found
    assert found["violation"] is False
    assert 0 <= found["epsilon_audited"] <= found["epsilon_proven"]
    assert [bound["name"] for bound in found["audit"]["bounds"]] == [
        "threshold", "one run", "Gaussian DP", "one run, f-DP",
    ]  # fmt: skip
    certificate = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert certificate["epsilon_audited"] == found["epsilon_audited"]
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "No violation found" in page


def test_a_finished_run_gets_its_audited_figure(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert command("run", "--set", "rounds=6", "--out", "r")[0] == 0
    code, out, _ = command("audit", "r", "--runs", "1", "--out", "a")
    assert code == 0
    assert "audited figure" in out
    certificate = json.loads((tmp_path / "r" / "certificate.json").read_text())
    assert certificate["violation"] is False
    assert certificate["epsilon_audited"] >= 0
    assert "What the attack shows" in (tmp_path / "r" / "certificate.html").read_text()
    assert command("report", "r")[0] == 0
    assert command("plan", "--ledger", "r")[0] == 0


FULL = ("--set", "nodes=4", "--set", "rounds=2", "--set", "privacy.sampling.kind=full")
PAIRWISE = (*FULL, "--set", "privacy.noise.family.kind=pairwise")


def test_colluders_are_judged_by_what_is_proven_against_them(command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("audit", "quickstart", "--json", *PAIRWISE, "--observer", "all+2", "--runs", "2")
    assert code == 0
    found = json.loads(out.strip().splitlines()[-1])
    held = found["audit"]["held_against"]
    assert (held["colluders"], held["colluders_planned"]) == (2, 1)
    assert held["epsilon_proven"] > held["epsilon_proven_as_planned"] == found["epsilon_proven"]
    assert found["observer"].startswith("any 2 of the nodes together")


def test_an_audit_of_releases_says_that_no_model_was_trained(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = ("audit", "quickstart", "--set", "rounds=2", "--canary", "release", "--runs", "500")
    code, out, _ = command(*asked, "--out", "a")
    assert code == 0
    assert "500 coins: 500 draws of the mechanism, in one dimension" in out
    found = json.loads((tmp_path / "a" / "certificate.json").read_text())
    page = (tmp_path / "a" / "report.html").read_text()
    assert found["audit"]["trained"] is False
    assert found["audit"]["attacked"].startswith("the mechanism alone")
    for said in (out, page):
        assert "the attack on the mechanism alone (draws in one dimension; no model was trained) shows" in said
        assert "trainings" not in said


def test_planned_releases_are_attacked_as_colluders_see_them(command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command(
        "audit", "quickstart", *PAIRWISE, "--observer", "all+2", "--canary", "release", "--runs", "500"
    )
    assert code == 0
    assert "more than was planned for" in out


@pytest.mark.slow
def test_seeded_audits_repeat_and_system_ones_do_not(command) -> None:  # type: ignore[no-untyped-def]
    def figure(*words: str) -> float:
        _, out, _ = command("audit", "quickstart", "--json", *SHORT, *words)
        found = json.loads(out.strip().splitlines()[-1])
        return float(next(b["epsilon"] for b in found["audit"]["bounds"] if b["name"] == "Gaussian DP"))

    seeded = ["--set", "privacy.noise.source=seeded"]
    assert figure(*seeded) == figure(*seeded)
    assert figure() != figure()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--observer", "nobody"], ["--observer nobody", "neighbour"]),
        (["--observer", "coalition:0,99"], ["coalition:0,99", "0 … 7"]),
        (["--canary", "parrot"], ["--canary parrot", "dirac"]),
        (["--canary", "blank", "--observer", "neighbour"], ["blank", "final"]),
        (["--canary", "lengths", "--observer", "final"], ["lengths", "--observer all"]),
        (["--runs", "0"], ["--runs 0"]),
        (["--confidence", "1"], ["--confidence 1"]),
        (["--confidence", "nan"], ["--confidence nan"]),
        (["--set", "baseline=non-private"], ["noise"]),
        (["--set", "baseline=central"], ["central", "--canary blank"]),
        (["--set", "privacy.sampling.kind=single"], ["single", "replace-one"]),
        (["--set", "algorithm.kind=dp-dinno", "--set", "topology.kind=ring", "--observer", "neighbour"], ["linear", "plain"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    command, tmp_path: Path, words: list[str], named: list[str]
) -> None:  # type: ignore[no-untyped-def]
    code, out, err = command("audit", "quickstart", *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err
    assert list(tmp_path.iterdir()) == []
    assert out.count("\n") <= 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["data.holders=8"], ["model.kind", "lookup"]),
        (
            ["data.holders=8", "data.per_holder=20", "model.kind=lookup", "model.rows=10"],
            ["model.rows = 10", "20"],
        ),
        (["data.holders=5", "data.per_holder=20", "model.kind=lookup", "model.rows=20"], ["nodes = 8", "5"]),
        (["model.kind=lookup", "model.rows=1", "data.holders=8"], ["model.rows = 1"]),
    ],
)
def test_dirac_records_need_a_table_that_has_their_places(command, words: list[str], named: list[str]) -> None:  # type: ignore[no-untyped-def]
    settings = [part for word in ["data.kind=dirac", *words] for part in ("--set", word)]
    code, _, err = command("run", "quickstart", *settings)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err


@pytest.mark.parametrize("observer", ["neighbour", "final"])
def test_noise_on_messages_is_not_filtered(command, observer: str) -> None:  # type: ignore[no-untyped-def]
    code, _, err = command("audit", "dp-dkm/truncated", "--set", "mode=paper", "--observer", observer)
    assert code == 2
    assert_names(err, "--observer", observer, "iterate messages all", remedy=True)


@pytest.mark.slow
def test_a_violation_is_declared_in_the_messages_of_dp_dkm(command) -> None:  # type: ignore[no-untyped-def]
    words = ["--set", "mode=paper", "--set", "privacy.noise.source=seeded", "--observer", "messages"]
    code, out, _ = command("audit", "dp-dkm/truncated", *words, "--runs", "200", "--json")
    assert code == 0
    found = json.loads(out.strip().splitlines()[-1])
    assert found["violated"] == ["claimed"]
    assert found["epsilon_audited"] > found["epsilon_claimed"]
    assert "without the final models" in found["observer"]


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(x.flatten(1))
"""


def test_a_module_out_of_a_file_is_searched(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "net.py").write_text(NET)
    words = ["--module", "net.py:Net", "--canary", "sensitivity", "--runs", "40", "--out", "a"]
    code, out, _ = command("audit", "quickstart", *SHORT[:2], *words)
    assert code == 0
    assert "another node's sum" in out
    assert "tried moves more than its bound." in out
    page = (tmp_path / "a" / "report.html").read_text()
    assert "How far one record moves a sum" in page
    assert "<svg" not in page  # no coins, no pictures of them
    code, _, err = command("audit", "quickstart", "--module", "net.py:Nut")
    assert code == 2
    assert err.strip().endswith("net.py has no Nut; it has Net.")


def test_a_search_that_breaks_a_bound_is_a_violation(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """The fix taken out: a vector in which records share a batch, of a module that subtracts their mean."""
    monkeypatch.setattr(
        "gossamer.methods.base.gradient_vector",
        lambda config, module, classes: HandMadeSum(MeanOfTheLot(), per_sample_loss(classes, config)),
    )
    config = resolve(recipes.read("quickstart"), {"rounds": 4, "nodes": 2, "data.train_rows": 40})
    found = AuditRequest(config=config, module=Head(), canary="sensitivity", runs=60).run(tmp_path / "a")
    assert found["violation"] is True
    assert found["violated"] == ["sensitivity"]
    assert "Violation: one record moves" in (tmp_path / "a" / "report.html").read_text()


def test_a_finished_run_keeps_its_coins_beside_a_search(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    moved = {"broken": True, "movements": [], "tried": 3, "seconds": 0.1, "in_time": True, "stopped": None}
    before = dated(epsilon_audited=0.7, audit=coins(), violation=True, violated=["claimed"])
    (folder / "certificate.json").write_text(json.dumps(before))
    searched = dated(violated=["sensitivity"], violation=True, audit=coins(bounds=[], sensitivity=moved))
    add_to_run(folder, searched)
    add_to_run(folder, searched)
    kept = json.loads((folder / "certificate.json").read_text())
    assert kept["epsilon_audited"] == 0.7
    assert kept["violated"] == ["claimed", "sensitivity"]
    assert kept["audit"]["coins"] == 4000
    assert kept["audit"]["sensitivity"]["tried"] == 3


def test_a_folder_that_is_no_run_is_refused(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty").mkdir()
    code, _, err = command("audit", "empty")
    assert code == 2
    assert_names(err, "empty", names="certificate.json", remedy=True)
