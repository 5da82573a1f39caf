"""Compiled loops are for the processor's memory alone; elsewhere a step asks the device as little as it can.

There is no accelerator here: the operations of one are run on the processor, with the compiled loops forbidden, and
every operation that makes the host wait for a device is counted.
"""

from typing import Any

import pytest
import torch
from tests.support.per_sample import CASES, WEIGHS, cross_entropy, problem
from torch.utils._python_dispatch import TorchDispatchMode

from gossamer.kernels import clipped_sum as engine
from gossamer.kernels import dense, direct, mixing
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.mixing import MixPlan
from gossamer.kernels.threads import runs_compiled

WAITS = {"_local_scalar_dense", "nonzero", "unique", "_unique2", "masked_select", "equal", "is_nonzero"}
# How often a step asks: how many records there are, whether all norms are finite, whether the sum is.
QUESTIONS = 3


class Waits(TorchDispatchMode):
    """Counts what needs an answer from the device; indexing by a mask is `nonzero` in disguise."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        places = args[1] if name in ("index", "index_put_", "index_put") else ()
        masks = [p for p in places if isinstance(p, torch.Tensor) and p.dtype == torch.bool]
        if name in WAITS or masks:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def no_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engine, dense, direct, mixing):
        monkeypatch.setattr(module, "runs_compiled", lambda _: False)


def test_only_the_processor_runs_compiled_loops() -> None:
    assert runs_compiled(torch.zeros(1))
    assert not runs_compiled(torch.zeros(1, device="meta"))


@pytest.mark.usefixtures("no_compiled_loops")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("case", ["linear", "mlp", "conv", "group norm", "embedding", "residual"])
def test_a_gradient_asks_the_device_three_times(case: str, ragged: bool) -> None:
    assert case in CASES
    module, points, x, y = problem(case, 4, 4, 1)  # so many nodes share one call
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 3] = not ragged
    kernel = ClippedSum(module, cross_entropy, method="book-keeping")
    wanted, _ = kernel(points, x, y, mask, WEIGHS["constant"])  # the first call chooses the method
    with Waits() as waits:
        total, _ = kernel(points, x, y, mask, WEIGHS["constant"])
    assert len(waits.found) == QUESTIONS, waits.found
    torch.testing.assert_close(total, wanted)


@pytest.mark.usefixtures("no_compiled_loops")
def test_mixing_never_asks() -> None:
    plan = MixPlan(torch.eye(4).roll(1, 0).mul(0.5).add(torch.eye(4), alpha=0.5).numpy())
    with Waits() as waits:
        plan(torch.randn(4, 9))
    assert waits.found == []
    assert plan(torch.randn(4, 9, device="meta")).device.type == "meta"


def test_the_counter_sees_what_waits() -> None:
    values = torch.ones(3)
    with Waits() as waits:
        _ = bool(values.sum() > 0), values.sum().item(), values[values > 0], values.nonzero()
    assert len(waits.found) >= 4
