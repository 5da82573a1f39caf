"""The algorithms. A new one is a file here and a line in `registry`."""

from __future__ import annotations

from typing import Any


def registry() -> dict[str, Any]:
    from gossamer.algorithms.dinno import DiNNO
    from gossamer.algorithms.dsgd import DSGD
    from gossamer.algorithms.dsgt import DSGT
    from gossamer.algorithms.push_sum import PushSum

    return {"push-sum": PushSum, "dsgd": DSGD, "dsgt": DSGT, "dinno": DiNNO}
