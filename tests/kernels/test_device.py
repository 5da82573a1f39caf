"""Compiled loops are for the processor's memory alone."""

import torch

from gossamer.kernels.device import runs_compiled


def test_only_the_processor_runs_compiled_loops() -> None:
    assert runs_compiled(torch.zeros(1))
    assert not runs_compiled(torch.zeros(1, device="meta"))
