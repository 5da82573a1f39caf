"""What was recorded before a change of the code is what comes out after it. See tests/support/recorded.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.recorded import Case, data_cases, difference, observed, offline_cases

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
DATA = Path(os.environ.get("GOSSAMER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compare(case: Case, data_dir: Path | None = None) -> None:
    assert difference(observed(case, data_dir), RECORDED["cases"][case.name]) is None


def quick(case: Case) -> bool:
    """Every method in sound mode, and the baselines of quickstart."""
    return case.recipe == "quickstart" and ("baseline" in case.changes or case.changes.get("mode") == "sound")


QUICK, LONGER = ([case for case in offline_cases() if quick(case) is wanted] for wanted in (True, False))


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_five_rounds_give_what_was_recorded(case: Case) -> None:
    compare(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", LONGER, ids=lambda case: case.name)
def test_five_rounds_of_everything_give_what_was_recorded(case: Case) -> None:
    compare(case)


def test_the_last_bits_are_no_difference_and_a_change_is() -> None:
    recorded = RECORDED["cases"]["quickstart baseline=none"]

    def changed(part: str, **values: Any) -> str | None:
        return difference({**recorded, part: {**recorded[part], **values}}, recorded)

    figures, projections = recorded["figures"], recorded["projections"]
    assert changed("figures", loss_mean=figures["loss_mean"] * (1 + 1e-7)) is None
    assert difference({**recorded, "projections": [p + 1e-5 for p in projections]}, recorded) is None
    for part, key, value in (
        ("figures", "loss_mean", figures["loss_mean"] * 1.01),
        ("figures", "epsilon_proven", figures["epsilon_proven"] * (1 + 1e-5)),
        ("figures", "accuracy_mean", figures["accuracy_mean"] + 0.01),
        ("figures", "bytes_sent", figures["bytes_sent"] + 1),
        ("stated", "method", "another"),
    ):
        assert str(changed(part, **{key: value})).startswith(f"{key} was ")
    other = [p * 1.01 for p in projections]
    assert difference({**recorded, "projections": other}, recorded) == "the models differ"


@pytest.mark.data
@pytest.mark.parametrize("case", data_cases(), ids=lambda case: case.name)
def test_five_rounds_on_real_data_give_what_was_recorded(case: Case) -> None:
    if not DATA.is_dir():
        pytest.skip(f"no data sets at {DATA}; set GOSSAMER_DATA")
    compare(case, DATA)
