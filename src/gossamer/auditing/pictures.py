"""What the report shows of an audit's scores: the attack's ROC curve, the area below it, two histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from gossamer.auditing.bounds import Coins

_POINTS, _BINS = 200, 40


def of(coins: Coins) -> dict[str, Any]:
    return {"roc": roc(coins), "auc": auc(coins), "histogram": histogram(coins)}


def roc(coins: Coins) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) as the threshold falls, thinned towards the interesting low end."""
    heads, tails = (np.sort(side)[::-1] for side in coins.sides)
    if not len(heads) or not len(tails):
        return []
    ranks = np.unique(np.concatenate([[0], np.geomspace(1, len(coins), _POINTS).round()]).astype(int))
    cuts = np.sort(coins.scores)[::-1][np.minimum(ranks, len(coins) - 1)]
    points = [(float((tails >= cut).mean()), float((heads >= cut).mean())) for cut in cuts]
    return [(0.0, 0.0), *points, (1.0, 1.0)]


def auc(coins: Coins) -> float | None:
    """How often a score with the canary is above one without; ties count half (Mann and Whitney 1947)."""
    heads, tails = coins.sides
    if not len(heads) or not len(tails):
        return None
    ranks = stats.rankdata(np.concatenate([heads, tails]))[: len(heads)]
    return float((ranks.sum() - len(heads) * (len(heads) + 1) / 2) / (len(heads) * len(tails)))


def histogram(coins: Coins) -> dict[str, list[float]]:
    low, high = np.quantile(coins.scores, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    heads, tails = (np.histogram(np.clip(side, low, high), edges)[0] for side in coins.sides)
    return {
        "edges": edges.tolist(),
        "in": (heads / max(1, heads.sum())).tolist(),
        "out": (tails / max(1, tails.sum())).tolist(),
    }
