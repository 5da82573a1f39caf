"""What a child process of ours needs in its environment: our package, and its share of the cores. A leaf."""

from __future__ import annotations

import os
from pathlib import Path

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """Ours, with so many threads for each of the libraries."""
    root = str(Path(__file__).parents[2])
    return {
        **os.environ,
        **dict.fromkeys(_THREADS, str(threads)),
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
