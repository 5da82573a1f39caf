"""No noise: the sum leaves as it is, and the release says so."""

from __future__ import annotations

import math

import torch
from tests.support.mechanism import noise_of, private_mean

from gossamer.accounting.releases import Unnoised
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.base import Silent


def test_what_leaves_is_the_sum_and_the_ledger_says_that_nothing_hides_it() -> None:
    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    grad, book = private_mean(x, z=0.0, lots=[1.0])
    weights = (1 / x.norm(dim=2)).clamp_max(1.0)
    torch.testing.assert_close(grad(torch.zeros(1, 4)), (x * weights[..., None]).sum(1))
    (release,) = [event.release for _, event in book.events]
    assert isinstance(release, Unnoised)
    assert release.unpriceable("add-remove") == "a value was released without noise"


def test_sums_are_not_touched_and_nothing_is_drawn() -> None:
    sums, ones = torch.ones(2, 3), torch.ones(2, dtype=torch.float64)
    noise = noise_of(0.0, 2, Silent())
    assert noise.ahead(Stream.seeded(0), range(2), 0, 3) is None
    noise.add(Stream.seeded(0), range(2), 0, sums, multiplier=ones, bound=ones, active=ones.bool())
    assert torch.equal(sums, torch.ones(2, 3))


def test_a_bound_that_nothing_enforces_is_no_sensitivity() -> None:
    part = Participation("full", 1.0, "add-remove")
    noise = noise_of(0.0, 1, Silent())
    assert noise.release(0, 0.0, 2.0, 3, part, enforced=True).sensitivity == 2.0
    assert math.isinf(noise.release(0, 0.0, 2.0, 3, part, enforced=False).sensitivity)
