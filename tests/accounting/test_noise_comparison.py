"""The table of noises: a paper's order, and the other one that can be proven."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossamer.accounting.noise_comparison import noise_lines, truncated_share


def test_the_noise_table_has_the_papers_order_and_the_proofs_other_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "gossamer.accounting.noise_comparison.SHAPES", ()
    )  # what is priced number by number takes seconds
    lines = {
        line.noise: line
        for line in noise_lines(epsilon=0.5, delta=1e-3, releases=20, dimension=10, adjacency="add-remove")
    }
    order = ["truncated-gaussian", "truncated-laplace", "laplace", "gaussian"]
    claimed = [lines[name].claimed_std for name in order]
    assert claimed == sorted(claimed)  # what the paper plots
    assert lines["truncated-gaussian"].true_delta == pytest.approx(0.238, abs=1e-3)
    assert lines["gaussian"].true_delta < 1e-5
    assert lines["truncated-laplace"].true_epsilon == pytest.approx(0.5, rel=1e-6)
    # A record that moves one number has 20 chances of 1e-3 each to be shown.
    assert lines["truncated-gaussian"].identifying == pytest.approx(1 - (1 - 1e-3) ** 20, rel=1e-6)
    proven_std = {name: line.proven_std for name, line in lines.items()}
    assert min(proven_std, key=proven_std.get) == "gaussian"
    assert proven_std["gaussian"] == pytest.approx(math.sqrt(20) * 4.61, rel=0.01)
    assert proven_std["gaussian"] < proven_std["truncated-gaussian"] < 1.05 * proven_std["gaussian"]


def test_truncation_is_paid_by_a_twentieth_of_delta() -> None:
    cut = truncated_share(0.5, 1e-3, 800) * 800
    assert cut * (1 + math.exp(0.5)) == pytest.approx(1e-3 / 20)
