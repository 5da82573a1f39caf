import platform
import subprocess
import sys

import pytest

from gossamer.kernels.memory import keep_freed_memory

COUNT_FAULTS = """
import resource, torch
from gossamer.kernels.memory import keep_freed_memory
{tell}
for _ in range(3):
    torch.zeros(1 << 21)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(1 << 21)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(tell: str) -> int:
    """In a process of its own: what other tests left on this one's heap would count too."""
    code = COUNT_FAULTS.format(tell=tell)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_large_tensors_come_back_without_page_faults() -> None:
    assert page_faults("assert keep_freed_memory()") < 20 * (1 << 23) // 4096 / 2


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory.__wrapped__()
