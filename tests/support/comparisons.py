"""Results and rows of a comparison, with figures of their own making."""

from __future__ import annotations

from typing import Any

from gossamer.studies.compare import summarise


def result(accuracy: float, *, proven: float | None = 1.0, claimed: float | None = 0.9) -> dict[str, Any]:
    return {
        "accuracy_mean": accuracy,
        "accuracy_min": accuracy - 0.1,
        "consensus_distance": 2 * accuracy,
        "seconds": 10 * accuracy,
        "epsilon_claimed": claimed,
        "epsilon_proven": proven,
        "not_proven_because": None if proven is not None else "a reason",
        "delta": 1e-5,
        "adjacency": "add-remove",
        "unit": "one record of one node",
        "stamp": None,
        "history": [{"round": r, "accuracy_mean": accuracy * r / 20} for r in (10, 20)],
    }


def row(*results: dict[str, Any], label: str = "a", baseline: str | None = None, **settings: Any) -> dict[str, Any]:
    return {
        "recipe": label,
        "settings": settings,
        "baseline": baseline,
        **summarise(results),
        "cells": [],
    }


ROWS = [
    row(result(0.8), result(0.9), **{"privacy.epsilon": 1.0, "algorithm.kind": "x"}),
    row(result(0.7, proven=None), **{"privacy.epsilon": 2.0, "algorithm.kind": "y|z"}),
    row(
        result(0.95, proven=None, claimed=None),
        baseline="non-private",
        **{"privacy.epsilon": None, "algorithm.kind": "x"},
    ),
]
