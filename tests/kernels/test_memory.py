import platform
import resource
import sys

import pytest
import torch

from gossamer.kernels.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_large_tensors_come_back_without_page_faults() -> None:
    assert keep_freed_memory()
    for _ in range(3):
        torch.zeros(1 << 21)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(1 << 21)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 20 * (1 << 23) // 4096 / 2


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory.__wrapped__()
