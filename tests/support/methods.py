"""A short run of every algorithm, and of every part of a mechanism that carries something from draw to draw."""

from __future__ import annotations

from typing import Any

KM = {
    "algorithm.kind": "dp-dkm", "topology.kind": "ring", "model.kind": "linear", "loss": {"kind": "logistic"},
    "data.positive": 3,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "push-sum": {"algorithm.kind": "dyn-d2p", "topology.kind": "resampled", "topology.base": "digraph"},
    "push-sum, quantile clip": {"algorithm.kind": "adad2p", "privacy.clip.kind": "quantile"},
    "push-sum, fixed-size lots": {"algorithm.kind": "sgp", "privacy.sampling": {"kind": "fixed-size", "lot": 9}},
    "dsgd": {"algorithm.kind": "dp-dsgd", "topology.kind": "ring", "topology.dropout": 0.3},
    "dsgt": {"algorithm.kind": "dp-dsgt", "topology.kind": "ring"},
    "dinno": {
        "algorithm.kind": "dp-dinno", "algorithm.steps": 2, "algorithm.persistent": True, "topology.kind": "ring"
    },
    "exact means": {"algorithm.kind": "dyn-d2p", "algorithm.mixes": "exact", "algorithm.momentum": 0.5},
    "exact means by a filter": {"algorithm.kind": "dp-dsgt", "algorithm.mixes": "exact", "topology.kind": "ring"},
    "noise that cancels": {
        "algorithm.kind": "dyn-d2p", "algorithm.mixes": "exact", "privacy.noise.family": {"kind": "pairwise"}
    },
    "noise that cancels, few secrets": {
        "algorithm.kind": "dp-dsgt", "topology.kind": "ring",
        "privacy.noise.family": {"kind": "pairwise", "secrets": "exponential", "ratio": 10.0},
    },
    "km": {"algorithm.lr": 0.5, **KM},
    "km, noise on messages": {
        "mode": "paper",
        "privacy.noise.multiplier": 2.0, "privacy.epsilon": None, "algorithm.lr": 0.5, "privacy.clip": {"kind": "assumed", "bound": 0.1}, **KM
    },
    "km, a resolvent that starts where its last ended": {
        "algorithm.lr": 0.5, "algorithm.operator": "backward", "algorithm.resolvent": "node", "mode": "paper",
        "privacy.sampling": {"kind": "full"}, "privacy.noise.schedule": {"kind": "none"}, **KM,
    },
}  # fmt: skip
