"""The algorithms. A new one is a file here and a line in `registry`."""

from __future__ import annotations

from typing import Any


def registry() -> dict[str, Any]:
    from gossamer.algorithms.push_sum import PushSum

    return {"push-sum": PushSum}
