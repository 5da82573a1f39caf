"""The table of noises: at the plan's smallest budget, and with what each figure means beside it."""

from __future__ import annotations

import pytest
from tests.support.configurations import outlined

from gossamer.errors import UserError
from gossamer.results.console import noise_summary, show_noises


def test_the_table_is_of_the_smallest_budget_and_the_runs_own_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gossamer.accounting.noise_comparison.SHAPES", ())  # priced number by number: seconds
    full = {"privacy__sampling": {"kind": "full"}, "data__features": 2}
    made = outlined("dp-dkm/lasso", rounds=5, nodes=3, privacy__epsilon=[0.9, 0.5, 0.9], **full)
    summary = noise_summary(made)
    assert (summary["epsilon"], summary["releases"], summary["dimension"]) == (0.5, 5, 2)
    assert summary["observer"]
    show_noises(summary)
    out = capsys.readouterr().out
    for line in summary["noises"]:
        assert line["noise"] in out
        assert f"{line['proven_std']:.3g}" in out
    assert "5 releases of 2 numbers" in out


def test_without_a_budget_there_is_nothing_to_compare_at() -> None:
    made = outlined("dp-dkm/lasso", rounds=5, privacy__epsilon=None, privacy__noise__multiplier=2.0)
    with pytest.raises(UserError, match=r"--noises needs a budget to compare at; set privacy\.epsilon"):
        noise_summary(made)
