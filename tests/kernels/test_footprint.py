"""Memory of gradients from shapes: what the engine says of itself, without a number being allocated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.per_sample import cross_entropy
from torch import Tensor, nn

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.memory import DEFAULT_MAX_BYTES, PRODUCTS_BYTES, Footprint, footprint
from gossamer.kernels.rounding import room


def network(**how: Any) -> nn.Module:
    first, second = nn.Conv2d(1, 4, 3, **how), nn.Linear(4 * 6 * 6, 3, **how)
    return nn.Sequential(first, nn.ReLU(), nn.Flatten(), second)


def test_it_is_what_the_engine_measures_on_blank_records() -> None:
    x, y = torch.zeros(1, 2, 1, 8, 8), torch.zeros(1, 2, dtype=torch.int64)
    kernel = ClippedSum(network(), cross_entropy)
    kernel.try_on(x, y)
    found = footprint(network(), (1, 8, 8))
    activations = 4 * (4 * 6 * 6) * 2  # ReLU and Flatten, which book-keeping leaves to autograd
    assert found.gradient == kernel.method.bytes_per_record + activations  # type: ignore[attr-defined]
    assert found.widest_layer == 4 * 2 * (4 * 6 * 6)  # ReLU reads and writes the largest
    assert found.convolves


def test_shapes_alone_are_enough() -> None:
    assert footprint(network(device="meta"), (1, 8, 8)) == footprint(network(), (1, 8, 8))
    huge = footprint(nn.Linear(10**6, 10**6, device="meta"), (10**6,))
    assert huge.gradient == 4 * (10**6 + 3 * 10**6)


def test_record_by_record_holds_every_gradient() -> None:
    class Odd(nn.Linear):
        """A layer for which there is no rule."""

    plain, odd = footprint(nn.Linear(8, 3), (8,)), footprint(nn.Sequential(Odd(8, 3)), (8,))
    assert odd.gradient == 4 * 3 + 8 * 27
    assert footprint(nn.Linear(8, 3), (8,), own=True).gradient == plain.gradient + 8 * 27


class Broken(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        raise ZeroDivisionError


@pytest.mark.parametrize("module", [Broken(4, 2), nn.Linear(5, 2), nn.Identity()])
def test_a_forward_that_fails_is_somebody_elses_to_report(module: nn.Module) -> None:
    assert footprint(module, (4,)).gradient in (0, 16)


def test_looking_changes_nothing() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    before = torch.get_rng_state()
    footprint(module, (4,))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert not module[0]._forward_hooks


def test_lots_are_cut_as_the_engine_cuts_them() -> None:
    some = Footprint(gradient=1000, widest_layer=0, convolves=False)
    assert some.of_lots(8, 10.0) == 8 * room(10, varies=True) * 1000
    # an empty lot may be drawn with one record
    assert some.of_lots(8, 0.0) == 8 * room(1, varies=True) * 1000
    assert some.of_lots(10**6, 10.0) <= PRODUCTS_BYTES  # a slice of the nodes at a time
    large = Footprint(gradient=10**8, widest_layer=0, convolves=False)
    assert large.of_lots(4, 100.0) <= DEFAULT_MAX_BYTES
