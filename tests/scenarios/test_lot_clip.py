"""Lots clipped as a whole, end to end: planned, run, recomputed from the ledgers, searched, and refused where they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import outlined
from tests.support.refusals import expect_refusal

from gossamer import audit
from gossamer.accounting.ledger import read_all
from gossamer.accounting.recompute import recompute
from gossamer.kernels.rounding import EXCESS
from gossamer.methods.claims import dyn_d2p
from gossamer.training.api import run

LOTS: dict[str, Any] = {
    "nodes": 3,
    "rounds": 12,
    "evaluation.every": 100,
    "privacy.delta": 1e-4,
    "privacy.epsilon": 2.0,
    "privacy.sampling": {"kind": "poisson", "lot": 16},
    "privacy.clip": {"kind": "decaying", "start": 1.0, "ratio": 3.0, "of": "lot"},
    "privacy.noise": {"source": "seeded", "schedule": {"kind": "constant"}},
}


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", ["poisson", "fixed-size"])
def test_what_is_planned_is_what_the_ledgers_say(tmp_path: Path, kind: str, adjacency: str) -> None:
    changes = {**LOTS, "privacy.sampling": {"kind": kind, "lot": 16}, "privacy.adjacency": adjacency}
    outcome = run("quickstart", changes, out=tmp_path / "run")
    planned = outlined("quickstart", **changes).privacy
    _, events = read_all(tmp_path / "run")[0]
    assert {e.release.clipped for e in events} == {"lot"}
    assert events[0].release.sensitivity == pytest.approx(16.0 * (1 + EXCESS))
    assert {proof.proven.epsilon for proof in recompute(tmp_path / "run")} == {outcome.result["epsilon_proven"]}
    # σ over a falling bound differs in the last bits
    assert outcome.result["epsilon_proven"] == pytest.approx(planned.worst.proven.epsilon, rel=1e-5)
    assert outcome.result["epsilon_proven"] <= 2.0


def test_lots_cost_what_lots_of_fixed_size_do_and_twice_a_records_clip() -> None:
    each = {**LOTS, "privacy.clip": {"kind": "constant", "bound": 1.0}}
    factors = {
        (kind, of): outlined(
            "quickstart",
            **{**each, "privacy.sampling": {"kind": kind, "lot": 16}, "privacy.clip.of": of},
        ).privacy.worst.factor
        for kind in ("poisson", "fixed-size")
        for of in ("record", "lot")
    }
    assert factors["poisson", "lot"] == factors["fixed-size", "lot"] == factors["fixed-size", "record"]
    full = {**each, "privacy.sampling": {"kind": "full"}}
    whole = outlined("quickstart", **{**full, "privacy.clip.of": "lot"}).privacy.worst.factor
    assert whole == pytest.approx(2 * outlined("quickstart", **full).privacy.worst.factor)


def test_the_papers_reading_counts_a_lot_as_one_sample() -> None:
    """p = 1/J, noise C_k/μ_k on the mean; what is proven for it is far above what is claimed."""
    changes = {
        **LOTS,
        "mode": "paper",
        "algorithm.kind": "dyn-c-d2p",
        "algorithm.lr": 0.1,
        "privacy.claim": "gdp-clt-lot",
        "privacy.epsilon": 1.0,
    }
    plan = outlined("quickstart", **changes).privacy
    node = plan.worst
    assert node.claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert node.claim.epsilon == dyn_d2p([1 / node.factor] * 12, 1 / node.records, 1e-4).epsilon
    assert node.proven.epsilon > 5.0
    with expect_refusal(key="privacy.claim", value="gdp-clt-lot", names="privacy.sampling.lot", remedy=True):
        outlined("quickstart", **{**changes, "privacy.sampling": {"kind": "full"}})


def test_no_record_is_found_that_moves_a_lot_further(tmp_path: Path) -> None:
    report = audit("quickstart", LOTS, canary="sensitivity", runs=60, out=tmp_path / "audit")
    assert report.result["violation"] is False
    assert report.result["audit"]["sensitivity"]["tried"] >= 50


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_an_attack_stays_below_what_is_proven_and_breaks_what_the_paper_claims(tmp_path: Path, adjacency: str) -> None:
    """A record that turns lots around, release by release."""
    full = {**LOTS, "privacy.sampling": {"kind": "full"}, "privacy.adjacency": adjacency}
    sound = audit("quickstart", full, canary="release", runs=10_000, out=tmp_path / "sound").result
    assert sound["violation"] is False
    assert 0.2 < sound["epsilon_audited"] < sound["epsilon_proven"]
    paper = {
        "mode": "paper",
        "algorithm.kind": "dyn-c-d2p",
        "privacy.claim": "gdp-clt-lot",
        "algorithm.lr": 0.1,
    }
    lots = {**LOTS, "privacy.adjacency": adjacency, **paper}
    found = audit("quickstart", lots, canary="release", runs=10_000, out=tmp_path / "paper").result
    assert found["violated"] == ["claimed"]
    assert found["epsilon_claimed"] < found["epsilon_audited"] < found["epsilon_proven"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"privacy.sampling": {"kind": "one-pass", "lot": 16}}, "lot"),
        ({"privacy.sampling": {"kind": "balls-and-bins", "lots": 10}}, "lot"),
        ({"privacy.noise": {"kind": "pairwise"}}, "lot pairwise"),
        ({"privacy.clip": {"kind": "constant", "bound": 1.0, "of": "lot"}, "privacy.centre": 0.1}, "lot centre"),
        ({"privacy.clip": {"kind": "quantile", "of": "lot"}}, "quantile"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], word: str) -> None:
    with expect_refusal(key="privacy.clip.of", names=word):
        outlined("quickstart", **{**LOTS, **changes})
