"""Which kernels run where: compiled loops are for the processor's memory, everywhere else it is torch's operations."""

from __future__ import annotations

from torch import Tensor


def runs_compiled(values: Tensor) -> bool:
    """May loops compiled for the processor read and write these values? On "cuda" or "meta" torch's own must."""
    return values.device.type == "cpu"
