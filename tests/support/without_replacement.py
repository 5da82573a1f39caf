"""A small configuration of the method with a shared model, and what a run of it would cost."""

from __future__ import annotations

from typing import Any

from tests.support.configurations import outlined

DIGITS: dict[str, Any] = {
    "name": "digits",
    "nodes": 4,
    "rounds": 36,
    "data": {"kind": "digits", "scale": "unit-sphere"},
    "model": {"kind": "one-vs-all"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "without-replacement", "lr": 0.4},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "sampling": {"kind": "one-pass", "lot": 10}},
    "evaluation": {"every": 100},
}


def plan(**changes: Any) -> Any:
    return outlined(DIGITS, **changes).privacy
