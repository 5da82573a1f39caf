"""Full lots on the digits: priced by a closed form."""

from __future__ import annotations

from typing import Any

DIGITS: dict[str, Any] = {
    "nodes": 4,
    "rounds": 30,
    "data": {"kind": "digits", "transform": ["unit-norm"]},
    "model": {"kind": "softmax", "bias": False},
    "topology": {"kind": "one-peer-exponential"},
    "algorithm": {"kind": "full-lot"},
    "privacy": {"epsilon": 8.0, "delta": 1e-4},
}
