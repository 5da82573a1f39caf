"""Training: what is kept when, what is printed in the end, and how a stop is explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import outlined
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import RunDirectory
from gossamer.training.assemble import assemble
from gossamer.training.run import SHARED, checkpoint_rounds, execute

FIXED: dict[str, Any] = {"rounds": 6, "privacy__epsilon": None, "privacy__noise__multiplier": 50.0}


@given(rounds=st.integers(1, 5000), every=st.none() | st.integers(1, 700))
def test_the_last_round_is_kept_and_about_twenty_if_not_said(rounds: int, every: int | None) -> None:
    kept = checkpoint_rounds(rounds, every)
    assert max(kept) == rounds
    assert min(kept) >= 1
    if every is None:
        assert len(kept) <= 21


def test_what_is_printed_is_the_certificate_and_the_last_evaluation(tmp_path: Path) -> None:
    seen: list[Any] = []
    outcome = execute(
        assemble(outlined(**FIXED, evaluation__every=2)), out=tmp_path / "r",
        on_metrics=lambda row: seen.append(row["round"]), on_round=seen.append,
    )  # fmt: skip
    assert seen == [1, 2, 2, 3, 4, 4, 5, 6, 6]
    for key in SHARED:
        assert outcome.result[key] == outcome.certificate[key]
    last = json.loads((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()[-1])
    assert outcome.result["accuracy_mean"] == last["accuracy_mean"]
    assert outcome.points.shape == (8, 650)
    written = json.loads((tmp_path / "r" / "certificate.json").read_text())
    assert written["epsilon_proven"] == outcome.certificate["epsilon_proven"]


def test_a_disk_that_fails_is_a_sentence_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RunDirectory, row: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDirectory, "append_metrics", full)
    with expect_refusal(names=["No space left on device", f"gossamer run --resume {tmp_path / 'r'}"], remedy=True):
        execute(assemble(outlined(**FIXED)), out=tmp_path / "r")
