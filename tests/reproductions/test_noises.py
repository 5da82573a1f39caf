"""The paper's noises side by side: what is claimed of them, what is so, what is proven."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossamer.accounting.calibrate import truncated_share
from gossamer.accounting.profiles import gdp_mu
from gossamer.methods import claims
from reproductions.noises import density, exact_std, noise_line, noise_lines, noise_table, variance


def test_the_noise_table_has_the_papers_order_and_the_proofs_other_one(monkeypatch: Any) -> None:
    monkeypatch.setattr("reproductions.noises.SHAPES", ())  # what is priced number by number takes seconds
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


def test_one_number_once_by_its_exact_profile() -> None:
    assert exact_std("gaussian", 2.0, 0.5, 1e-3) == pytest.approx(1 / gdp_mu(0.5, 1e-3), rel=1e-4)


def test_a_formula_that_does_not_apply_says_so_and_the_proof_stays(monkeypatch: Any) -> None:
    """At δ ≥ ½ the truncated noises have no calibration in the paper."""
    monkeypatch.setattr("reproductions.noises.proven_std", lambda *_: 3.0)  # it takes seconds
    line = noise_line("x", "truncated-gaussian", 2.0, 0.5, 0.7, 1, 1, "add-remove")
    assert (line.claimed_std, line.bound, line.true_delta, line.identifying) == (None,) * 4
    assert line.remark is not None
    assert "must" in line.remark
    assert line.proven_std == 3.0


@pytest.mark.parametrize(("kind", "bound"), [("gaussian", math.inf), ("truncated-laplace", 3.0)])
def test_a_density_has_the_bound_of_its_kind(kind: str, bound: float) -> None:
    assert density(kind, 2.0, 1.5, 3.0).bound == bound


@pytest.mark.parametrize(
    ("epsilon", "delta", "share"),
    [(0.1, 1e-3, 0.88), (0.5, 1e-3, 0.96), (1.0, 1e-3, 0.98), (0.5, 1e-5, 1.0), (0.5, 1e-2, 0.84)],
)
def test_a_truncated_laplace_has_hardly_less_noise_than_the_laplace(epsilon: float, delta: float, share: float) -> None:
    """Of the pairs of DP-dKM's Figure 1, as the book's notes have them: what Definition 6 cuts off is little."""
    whole, cut = (
        variance(density(kind, 1.0, *claims.km_noise(kind, epsilon, delta, 1.0, 1.0)))
        for kind in ("laplace", "truncated-laplace")
    )
    assert math.sqrt(cut / whole) == pytest.approx(share, abs=0.005)


def test_the_table_has_every_noise(monkeypatch: Any) -> None:
    monkeypatch.setattr("reproductions.noises.proven_std", lambda *_: 3.0)
    text = noise_table(epsilon=0.5, delta=1e-3, releases=80, dimension=10, adjacency="add-remove").markdown()
    for words in (
        "truncated-gaussian",
        "truncated, b = 3",
        "80 releases of 10 numbers",
        "Theorem 6 is false",
    ):
        assert words in text
