"""What runs spent on records, made up."""

from __future__ import annotations

from typing import Any

from gossamer.accounting.budget import History, Spending
from gossamer.accounting.releases import Gaussian, Release

DELTA = 1e-5


def full(sigma: float, **changes: Any) -> Release:
    common = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}
    return Gaussian(sigma=sigma, **{**common, **changes})


def spent(run: str = "a", *histories: tuple[Release, int], **changes: Any) -> Spending:
    """One history per argument, on node 0, 1, … in turn."""
    made = tuple(History((i,), (pair,)) for i, pair in enumerate(histories or [(full(10.0), 4)]))
    base: dict[str, Any] = {
        "run": run, "node": 0, "records": "r.csv", "digest": "d", "name": run, "at": run, "delta": DELTA,
        "adjacency": "add-remove", "no_privacy": None, "holder": None, "times": 1, "histories": made,
    }  # fmt: skip
    return Spending(**{**base, **changes})
