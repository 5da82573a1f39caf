"""Baselines are the same run with other parts, and weights decide whose mean is minimised."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.kernels.noise import Stream
from gossamer.mechanism.sampling import PoissonSampler
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

SIZES = [4, 8, 48]
LEAST_SQUARES: dict[str, Any] = {
    "name": "squares",
    "nodes": 3,
    "rounds": 400,
    "data": {"kind": "npz", "path": "own.npz", "owner": "site", "task": "regression"},
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dp-dsgt", "lr": 0.2},
    "privacy": {
        "sampling": {"kind": "full"},
        "clip": {"kind": "none"},
        "noise": {"source": "seeded", "schedule": {"kind": "none"}},
    },
}
NOISY = {
    "privacy.clip": {"kind": "constant", "bound": 1.0},
    "privacy.noise.schedule": {"kind": "constant"},
    "privacy.epsilon": 3.0,
    "privacy.sampling": {"kind": "poisson", "lot": 2},
    "rounds": 20,
    "data.records": SIZES,
}


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three sites of very different size whose regressions disagree."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(3), SIZES)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = (x @ [1.0, -2.0] + site + 0.1 * rng.normal(size=60)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=y, site=site, x_test=x[:5], y_test=y[:5])
    return x, y, site


def solve(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted least squares with an intercept: (coefficients, intercept)."""
    design = np.column_stack([x, np.ones(len(x))])
    return np.linalg.solve(design.T @ (weight[:, None] * design), design.T @ (weight * y))


def points(tmp_path: Path, **changes: Any) -> np.ndarray:
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return gossamer.run(LEAST_SQUARES, changes, out=tmp_path / f"run-{len(list(tmp_path.iterdir()))}").points.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("dp-dsgt", {}), ("dp-dinno", {"algorithm__optimiser": "plain", "algorithm__rho": 0.3})],
)
def test_weighting_decides_whose_mean_is_minimised(squares, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    x, y, site = squares
    by_record, by_node = solve(x, y, np.ones(60)), solve(x, y, 1 / np.array(SIZES)[site])
    assert np.abs(by_record - by_node).max() > 0.3
    # Said again, for another method brings its own.
    none = {"privacy__clip__kind": "none", "privacy__noise__schedule__kind": "none"}
    changes = {"algorithm__kind": kind, **none, **options}
    uniform = points(tmp_path, **changes)
    np.testing.assert_allclose(uniform, np.tile(by_node, (3, 1)), atol=2e-3)
    sized = points(tmp_path, weighting="size", **changes)
    np.testing.assert_allclose(sized, np.tile(by_record, (3, 1)), atol=2e-3)


def test_central_has_the_objective_of_the_decentralized_run(squares, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    x, y, _ = squares
    pooled = points(tmp_path, weighting="size", baseline="central")
    assert pooled.shape == (1, 3)
    np.testing.assert_allclose(pooled[0], solve(x, y, np.ones(60)), atol=2e-3)
    with expect_refusal(key="privacy.sampling.kind", value="full", remedy=True):
        points(tmp_path, baseline="central")


@pytest.mark.slow
def test_a_node_alone_minimises_its_own(squares, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    x, y, site = squares
    for weighting in ("uniform", "size"):
        alone = points(tmp_path, baseline="no-communication", weighting=weighting, rounds=1500)
        for i in range(3):
            mine = site == i
            np.testing.assert_allclose(alone[i], solve(x[mine], y[mine], np.ones(mine.sum())), atol=5e-3)


@pytest.mark.slow
def test_pooled_records_are_drawn_so_that_nodes_count_alike(squares) -> None:  # type: ignore[no-untyped-def]
    parts = assemble(Plan.of(resolve(LEAST_SQUARES, {**NOISY, "baseline": "central"})))
    node = parts.plan.privacy.nodes[0]
    assert (node.records, node.lot) == (60, 6.0)
    assert node.rate == 0.5  # the smallest node's records are drawn most often, and that is what is priced
    assert isinstance(parts.sampler, PoissonSampler)
    assert parts.sampler.of_records
    hits = np.zeros(60)
    for step in range(4000):
        lot = parts.sampler.draw(Stream.seeded(0), [0], [60], step)
        hits[lot.rows[0][lot.mask[0]].numpy()] += 1
    expected = 4000 * np.repeat(2 / np.array(SIZES), SIZES)
    assert (np.abs(hits - expected) < 6 * np.sqrt(expected)).all()
    sized = assemble(Plan.of(resolve(LEAST_SQUARES, {**NOISY, "baseline": "central", "weighting": "size"})))
    assert sized.plan.privacy.nodes[0].rate == pytest.approx(0.1)
    assert set(sized.sampler.probabilities) == {0.1}  # type: ignore[attr-defined]


def test_central_is_refused_where_a_record_would_be_drawn_more_than_once(squares) -> None:  # type: ignore[no-untyped-def]
    uneven = {**NOISY, "privacy.sampling": {"kind": "poisson", "rate": 0.5}, "baseline": "central"}
    with expect_refusal(key="weighting", value="uniform", names="2.5"):
        Plan.of(resolve(LEAST_SQUARES, uneven))


def test_central_meets_the_strictest_of_the_budgets(squares) -> None:  # type: ignore[no-untyped-def]
    budgets = {"privacy.epsilon": [3.0, 1.0, 2.0], "privacy.delta": [1e-5, 1e-4, 1e-3]}
    node = Plan.of(resolve(LEAST_SQUARES, {**NOISY, **budgets, "baseline": "central"})).privacy.nodes[0]
    assert (node.epsilon, node.delta) == (1.0, 1e-5)
    assert 0.9 < node.proven.epsilon <= 1.0


SHORT = {"rounds": 10, "evaluation.every": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode"), [("dyn-d2p", "sound"), ("adad2p", "paper"), ("dp-dsgt", "sound"), ("dp-dinno", "paper")]
)
def test_every_baseline_runs_under_every_rule_and_says_so(tmp_path: Path, kind: str, mode: str) -> None:
    method = {
        **SHORT,
        "mode": mode,
        "algorithm.kind": kind,
        "topology.kind": "ring",
        "privacy.noise.source": "seeded",
    }
    for baseline, nodes in (("non-private", 8), ("no-communication", 8), ("central", 1)):
        outcome = gossamer.run("quickstart", {**method, "baseline": baseline}, out=tmp_path / f"{baseline}-{kind}")
        assert (outcome.result["baseline"], outcome.certificate["baseline"]) == (baseline, baseline)
        assert outcome.result["nodes"] == nodes == len(outcome.result["accuracy_by_node"])
        assert (outcome.result["bytes_sent"] > 0) == (baseline == "non-private")
        manifest = json.loads((outcome.directory / "manifest.json").read_text())
        assert manifest["name"] == f"quickstart+{baseline}"
        if baseline == "non-private":
            assert outcome.result["epsilon_proven"] is None
            assert "without noise" in outcome.result["not_proven_because"]


def test_the_run_directory_holds_what_was_asked_for(tmp_path: Path) -> None:
    changes = {**SHORT, "baseline": "central", "privacy.epsilon": [8.0] * 7 + [4.0]}
    outcome = gossamer.run("quickstart", changes, out=tmp_path / "r")
    written = tomllib.loads((tmp_path / "r" / "config.toml").read_text())
    assert resolve(written) == resolve(recipes.read("quickstart"), changes)
    assert 3.5 < outcome.result["epsilon_proven"] <= 4.0
    assert baseline_row(tmp_path / "r")


def baseline_row(directory: Path) -> bool:
    return "baseline: central" in (directory / "certificate.html").read_text()


@pytest.mark.slow
def test_weights_are_public_and_average_to_one(squares) -> None:  # type: ignore[no-untyped-def]
    planned = Plan.of(resolve(LEAST_SQUARES, {**NOISY, "weighting": "size"})).privacy
    assert [node.weight for node in planned.nodes] == pytest.approx([0.2, 0.4, 2.4])
    even = Plan.of(resolve(LEAST_SQUARES, NOISY)).privacy
    assert [node.factor for node in even.nodes] == [node.factor for node in planned.nodes]  # privacy is the same
