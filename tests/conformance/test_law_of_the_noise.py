"""The integers that leave a run are a rounded Gaussian's, and independent over coordinates, nodes and draws."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

import gossamer
from gossamer.kernels.noise import RATIO

NODES, RECORDS, WIDTH, MULTIPLIER = 2, 4, 60_000, 2.0
Integers = NDArray[np.float64]


@cache
def released(rounds: int, kind: str = "gaussian") -> Integers:
    """(nodes, coordinates): what the models of nodes that do not talk have moved by, in steps, where all records are 0."""
    module = torch.nn.Linear(WIDTH, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    config: dict[str, Any] = {
        "nodes": NODES,
        "rounds": rounds,
        "seed": 11,
        "algorithm": {"kind": "dp-dsgd", "lr": 1.0},
        "topology.kind": "complete",
        "baseline": "no-communication",
        "data.records": RECORDS,
        "data.partition.kind": "even",
        "data.task": "regression",
        "privacy.epsilon": None,
        "privacy.sampling": {"kind": "full"},
        "privacy.clip": {"kind": "constant", "bound": 1.0},
        "privacy.noise": {"source": "seeded", "multiplier": MULTIPLIER},
    }
    data: Any = np.zeros((NODES * RECORDS, WIDTH), np.float32), np.zeros(NODES * RECORDS, np.float32)
    points = gossamer.run("quickstart", config, data=data, module=module).points.double().numpy()
    steps = points * RECORDS / (MULTIPLIER / RATIO)
    assert np.abs(steps / 1.0025 - np.rint(steps / 1.0025)).max() < 0.01
    return np.asarray(-np.rint(steps / 1.0025))


def p_of(integers: Integers, scale: float) -> float:
    """χ² against the rounded Gaussian of deviation RATIO · scale, in 60 cells that are about as likely."""
    edges = np.unique(np.rint(RATIO * stats.norm.ppf(np.linspace(0, 1, 61)[1:-1])))
    seen = np.bincount(np.searchsorted(edges, integers.ravel()), minlength=len(edges) + 1)
    cdf = stats.norm(0, RATIO * scale).cdf(edges + 0.5)
    return float(stats.chisquare(seen, integers.size * np.diff(cdf, prepend=0, append=1)).pvalue)


def test_the_law_is_that_of_the_stated_noise_and_no_other() -> None:
    integers = released(1)
    assert p_of(integers, 1.0) > 1e-4
    assert p_of(integers, 0.97) < 1e-9
    assert p_of(integers, 1.03) < 1e-9


@pytest.mark.parametrize("what", ["nodes", "draws", "neighbours", "pairs"])
def test_integers_are_independent(what: str) -> None:
    """Correlations of the integers, of their sizes and of their last digits."""
    first = released(1)
    match what:
        case "nodes":
            one, other = first
        case "draws":
            one, other = first.ravel(), (released(2) - first).ravel()
        case "neighbours":
            one, other = first[:, :-1].ravel(), first[:, 1:].ravel()
        case _:
            one, other = first[:, ::2].ravel(), first[:, 1::2].ravel()
    for of in (lambda v: v, np.abs, np.square, lambda v: v % 2, lambda v: v % 7):
        assert abs(np.corrcoef(of(one), of(other))[0, 1]) < 5 / np.sqrt(len(one))
    cells = np.searchsorted(RATIO * stats.norm.ppf([0.2, 0.4, 0.6, 0.8]), np.stack([one, other]))
    table = np.bincount(5 * cells[0] + cells[1], minlength=25).reshape(5, 5)
    assert stats.chi2_contingency(table).pvalue > 1e-4
