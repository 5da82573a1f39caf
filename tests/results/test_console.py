"""What a run says on a terminal that is none: one plain line an evaluation, and no ε without what it needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.certificates import by_observer, certificate
from tests.support.configurations import outlined

from gossamer.accounting.observers import EVERYONE
from gossamer.data.arrays import format_bytes
from gossamer.results.console import (
    RunDisplay,
    coloured,
    data_table,
    graph_line,
    ledger_summary,
    show_ledger,
    show_plan,
    summary,
)
from gossamer.results.verify import Verdict
from gossamer.studies.tune import Tuning

ROW: dict[str, Any] = {
    "round": 5, "accuracy_min": 0.5, "accuracy_mean": 0.625, "accuracy_max": 0.75, "consensus_distance": 0.01234,
    "epsilon_proven": 1.5, "bytes_sent": 123_456,
}  # fmt: skip


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (3e9, "3 GB"), (4e12, "4 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert format_bytes(count) == text


def test_an_evaluation_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with RunDisplay("mine", 10, quiet=False) as shown:
        shown.round(5)
        shown.metrics(ROW)
        shown.metrics(
            {
                **ROW,
                "metric": "truth_rmse",
                "truth_rmse_min": 0.1,
                "truth_rmse_mean": 0.2,
                "truth_rmse_max": 0.3,
            }
        )
        shown.metrics({key: value for key, value in ROW.items() if not key.startswith("accuracy")})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "each line: min / mean / max over nodes; consensus: distance from the mean model; sent: by all nodes so far",
        "round 5  accuracy 50.0% / 62.5% / 75.0%  consensus 0.0123  proven ε 1.5  sent 123 kB",
        "round 5  RMSE to the truth 0.1 / 0.2 / 0.3  consensus 0.0123  proven ε 1.5  sent 123 kB",
        "round 5  hold-out none  consensus 0.0123  proven ε 1.5  sent 123 kB",
    ]


def test_with_json_stdout_belongs_to_the_object_and_others_are_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    RunDisplay("mine", 10, quiet=True).metrics(ROW)
    RunDisplay("mine", 10, quiet=True, hidden=True).metrics(ROW)
    out = capsys.readouterr()
    assert out.out == ""
    assert len(out.err.splitlines()) == 2


def test_an_outcome_ends_with_the_statement_and_where_it_lies(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        **ROW,
        "accuracy_average_model": 0.7,
        "hold_out_rows": 1000,
        "seconds": 2.0,
        "run_dir": "runs/[x]",
    }
    RunDisplay("mine", 10, quiet=False).outcome(result, certificate())
    out = capsys.readouterr().out
    assert "accuracy 62.50% mean over nodes, 50.00% worst node, 70.00% average model  (1,000 test rows, 2.0 s)" in out
    assert "proven ε = 2.5" in out
    assert "observer: everyone" in out
    assert "note: a & b" in out
    assert out.endswith("run directory: runs/[x]\n")


def test_where_nodes_share_noise_the_statement_names_every_observer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = {**ROW, "accuracy_average_model": 0.7, "hold_out_rows": 9, "seconds": 2.0, "run_dir": "r"}
    RunDisplay("mine", 10, quiet=False).outcome(result, certificate(**by_observer()))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["→", "0.5", "all"] and line.rstrip().endswith("(planned)") for line in lines)


def test_a_plan_says_what_its_figures_are_of(capsys: pytest.CaptureFixture[str]) -> None:
    made = outlined(rounds=20, privacy__sampling={"kind": "full"})
    show_plan(made)
    out = capsys.readouterr().out
    assert "quickstart: dyn-d2p, mode sound, 8 nodes, 20 rounds, softmax with 650 parameters" in out
    assert "ε at δ = 0.0001, add-remove, unit: " in out
    assert "observer: " in out
    found = summary(made)
    assert found["epsilon_proven"] <= 8.0
    assert found["rounds_affordable"] == [20] * 8
    first, last = found["noise_multiplier_first"][0], found["noise_multiplier_last"][0]
    assert first / last == pytest.approx(2 ** (19 / 20))
    assert found["bytes_per_round"] == made.bytes_per_round


def test_a_plan_has_a_line_for_each_observer_only_where_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = {"rounds": 20, "privacy__sampling": {"kind": "full"}}
    shared = outlined(**full, privacy__epsilon=1.0, privacy__noise__kind="pairwise")
    show_plan(shared)
    out = capsys.readouterr().out
    assert "by observer, who sees all messages, the final models, and" in out
    assert "all that any one of the 8 nodes knows (planned)" in out
    assert "ε for 0 … 7 colluding nodes  " in out
    found = summary(shared)
    assert [line["observer"] for line in found["epsilon_by_observer"]] == ["all+0", "all+1", "all+4", "all+7"]
    assert len(found["epsilon_by_colluders"]) == 8
    own = outlined(**full)
    show_plan(own)
    assert "by observer" not in capsys.readouterr().out
    assert [line["observer"] for line in summary(own)["epsilon_by_observer"]] == ["all"]


def test_data_sets_and_candidates_have_a_row_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data_table(
        [{"name": "digits", "available": True, "rows": (1437, 360), "shape": (1, 8, 8), "classes": 10, "origins": ["here"]},
         {"name": "later", "available": False, "rows": None, "shape": None, "classes": None, "origins": []}]
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "1,437 + 360" in out
    assert "1×8×8" in out
    best = {"settings": {"algorithm.lr": 0.5}, "accuracy_mean": 0.9, "epsilon_proven": 1.0}
    other = {"settings": {"algorithm.lr": 2.0}, "rmse_mean": 0.25, "epsilon_proven": None}
    common = {
        "delta": 1e-5,
        "adjacency": "add-remove",
        "unit": "a record",
        "observer": "everyone",
        "run_dir": "r",
    }
    candidates = {"candidates": [best, other], "chosen": best, "failed": {}}
    Tuning({**candidates, "epsilon_proven": 2.0, **common}).show()
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "chosen" in line and "0.5" in line]
    assert "RMSE 0.25" in out
    assert "all runs together: proven ε = 2 (δ = 1e-05, add-remove, unit: a record; observer: everyone)" in out


UNPAID = {
    "round": 3, "epsilon_proven": 0.0, "bytes_sent": 0, "seconds": 2.0, "run_dir": "r",
    "not_private": {
        "because": "local models are judged", "accuracy_min": 0.5, "accuracy_mean": 0.625, "accuracy_max": 0.75,
        "accuracy_average_model": 0.7, "hold_out_rows": 1000, "consensus_distance": 0.5,
    },
}  # fmt: skip


def test_figures_that_no_epsilon_covers_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    display = RunDisplay("mine", 10, quiet=False)
    display.metrics(UNPAID)
    assert "50.0% / 62.5% / 75.0% (not private)" in capsys.readouterr().out
    display.outcome(UNPAID, certificate())
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("NOT PRIVATE: local models are judged"))
    assert lines[at + 1].startswith("accuracy 62.50%")


def test_a_graph_is_described_and_what_is_not_known_left_out() -> None:
    several = {
        "directed": True, "rounds looked at": 3, "spectral gap": 1.0, "spectral gap per round": 0.5, "diameter": 3,
        "rounds until strongly connected": 3, "mean out-degree": 1.0,
    }  # fmt: skip
    assert graph_line(several) == (
        "directed, diameter 3, connected over any 3 rounds, each node sends to 1 other a round, "
        "spectral gap 1 over 3 rounds (0.5 per round)"
    )
    exact = {"directed": True, "rounds looked at": 5, "spectral gap": 1.0, "spectral gap per round": None}
    assert graph_line(exact) == "directed, spectral gap 1 over 5 rounds"
    one = {"directed": False, "rounds until strongly connected": 1, "mean out-degree": 2.5, "diameter": None}
    assert graph_line(one) == "undirected, connected in every round, each node sends to 2.5 others a round"


def test_what_is_proven_stands_out_and_infinity_warns() -> None:
    def styles(line: str) -> dict[str, str]:
        text = coloured(line)
        return {text.plain[span.start : span.end]: str(span.style) for span in text.spans}

    found = styles("proven ε = 2.5   claimed ε = 1   audited ε ≥ —   (δ = 1e-05, add-remove, unit: one record)")
    assert found["proven ε = 2.5"] == "bold green"
    assert found["claimed ε = 1"] == "yellow"
    assert found["audited ε ≥ —"] == "dim"
    assert styles("proven ε = ∞   claimed ε = 1")["proven ε = ∞"] == "bold red"
    assert styles("observer: everyone") == {}


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
