"""Numbers that a network draws come from the noise stream: each record has its own, whoever else is in the lot."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.noise import Stream
from gossamer.kernels.random_layers import Numbers, undisturbed
from gossamer.kernels.stack import ParameterStack

NODES, LOT = 2, 4


class Net(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last, self.draw = nn.Linear(4, 8), nn.Linear(8, 2), draw

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.draw(torch.tanh(self.first(x))))
        return found


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.GRU(4, 4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.first(x[:, None].expand(-1, 3, -1))[0][:, -1])
        return found


def attention(h: Tensor) -> Tensor:
    parts = h.view(-1, 2, 4)
    return F.scaled_dot_product_attention(parts, parts, parts, dropout_p=0.5).reshape(-1, 8)


DRAWS: dict[str, nn.Module] = {
    "dropout": Net(nn.Dropout(0.5)),
    "functional dropout": Net(lambda h: F.dropout(h, 0.3)),
    "alpha dropout": Net(nn.AlphaDropout(0.3)),
    "channel dropout": Net(lambda h: F.dropout2d(h.view(-1, 4, 2, 1), 0.5).flatten(1)),
    "randn_like": Net(lambda h: h + torch.randn_like(h)),
    "rand": Net(lambda h: h * torch.rand(8)),
    "randint": Net(lambda h: h * torch.randint(1, 4, (8,))),
    "randperm": Net(lambda h: h[:, torch.randperm(8)]),
    "bernoulli": Net(lambda h: h * torch.bernoulli(torch.full_like(h, 0.5))),
    "in place": Net(lambda h: h + torch.empty_like(h).normal_(0.0, 2.0) + torch.empty_like(h).uniform_(-1, 1)),
    "normal": Net(lambda h: torch.normal(h, 1.0) + torch.normal(0.0, 1.0, (8,))),
    "gumbel": Net(F.gumbel_softmax),
    "rrelu": Net(nn.RReLU()),
    "attention": Net(attention),
    "recurrent": Recurrent(),
}


class Sums:
    """Clipped sums of fixed records, with numbers from a stream or from none that is known."""

    def __init__(self, module: nn.Module) -> None:
        chance = torch.Generator().manual_seed(0)
        self.kernel = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
        self.points = ParameterStack(module).flatten(module).repeat(NODES, 1)
        self.x, self.y = torch.randn(NODES, LOT, 4, generator=chance), torch.zeros(NODES, LOT).long()

    def __call__(self, mask: Tensor, *, seed: int | None = None, lot: int = LOT, **more: Any) -> Tensor:
        if seed is not None:
            self.kernel.draw_from(Stream.seeded(seed), 1, np.arange(NODES), 3)
        x, y = more.get("x", self.x)[:, :lot], self.y[:, :lot]
        return self.kernel(self.points, x, y, mask[:, :lot], lambda norms: (0.1 / norms).clamp_max(1))[0]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "recurrent" else ()) for kind in DRAWS]
)
def test_one_record_moves_its_own_nodes_sum_by_its_clip_and_nothing_else(kind: str) -> None:
    sums, everyone = Sums(DRAWS[kind]), torch.ones(NODES, LOT, dtype=torch.bool)
    without = everyone.clone()
    without[0, LOT - 1] = False
    torch.manual_seed(0)
    state = torch.get_rng_state()
    here, there = sums(everyone, seed=1), sums(without, seed=1)
    assert (here - there)[0].norm() <= 0.1 * 1.001
    torch.testing.assert_close(here[1], there[1])
    # Also where the lot is shorter, as without that record it would be.
    torch.testing.assert_close(sums(without, seed=1, lot=LOT - 1)[0], there[0])
    assert not torch.equal(sums(everyone, seed=2), here)
    torch.manual_seed(0)
    first = sums(everyone)
    torch.manual_seed(0)
    assert not torch.equal(sums(everyone), first)  # nobody can repeat what no stream was named for
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["dropout", "randn_like"])
def test_a_record_that_is_left_out_changes_no_other_records_numbers(kind: str) -> None:
    sums, everyone = Sums(DRAWS[kind]), torch.ones(NODES, LOT, dtype=torch.bool)
    without = everyone.clone()
    without[0, 1] = False
    spoilt = sums.x.clone()
    spoilt[0, 1] = torch.nan
    torch.testing.assert_close(sums(everyone, seed=1, x=spoilt), sums(without, seed=1))


def test_nor_does_one_on_which_the_module_fails() -> None:
    class Inverse(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.linalg.inv(x.view(-1, 2, 2)).flatten(1))

    sums, everyone = (
        Sums(Inverse(lambda h: h + torch.randn_like(h))),
        torch.ones(NODES, LOT, dtype=torch.bool),
    )
    without = everyone.clone()
    without[0, 1] = False
    singular = sums.x.clone()
    singular[0, 1] = 0
    expected = sums(without, seed=1)
    assert bool(expected.any())
    torch.testing.assert_close(sums(everyone, seed=1, x=singular), expected)


def test_numbers_are_uniform_and_the_same_in_whatever_slices() -> None:
    numbers = Numbers(Stream.seeded(1), 1, np.arange(3), 5)
    shapes, like = [torch.Size([7]), torch.Size([]), torch.Size([2, 3])], torch.zeros(1)
    whole = numbers.draw(shapes, slice(0, 3), range(2000), like)
    assert [tuple(one.shape) for one in whole] == [(3, 2000, 7), (3, 2000), (3, 2000, 2, 3)]
    part = numbers.draw(shapes, slice(1, 3), range(30, 47), like)
    assert all(torch.equal(one[1:3, 30:47], other) for one, other in zip(whole, part, strict=True))
    every = torch.cat([one.flatten() for one in whole])
    assert 0 <= float(every.min()) < float(every.max()) < 1
    assert len(every.unique()) > 0.99 * len(every)
    assert abs(float(every.mean()) - 0.5) < 5 * (1 / 12 / len(every)) ** 0.5


def test_dropout_keeps_as_many_and_scales_as_torch_does() -> None:
    module = nn.Sequential(nn.Dropout(0.25), nn.Linear(1000, 1, bias=False))
    kernel = ClippedSum(module, lambda out, y: out[:, 0])
    x, y = torch.ones(1, 20, 1000), torch.zeros(1, 20)
    mask = torch.zeros(1, 20, dtype=torch.bool)
    mask[0, 3] = True
    sums, _ = kernel(torch.zeros(1, 1000), x, y, mask, torch.ones_like)
    values = sums[0].unique()
    torch.testing.assert_close(values, torch.tensor([0.0, 4 / 3]))
    assert 660 < int((sums[0] > 0).sum()) < 840  # 750 ± 6.6 standard deviations


OWN = torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda h: h * torch.multinomial(torch.softmax(h, 1), 1), "aten.multinomial.default"),
        (lambda h: h * torch.poisson(h.abs()), "aten.poisson.default"),
        (lambda h: h * torch.rand(8, generator=OWN), "aten.rand.generator"),
        (lambda h: h * torch.bernoulli(torch.full_like(h, 0.5), generator=OWN), "generator"),
        (lambda h: h * float(np.random.rand() > 0.5), "torch"),
        (lambda h: h * 2 if random.random() < 2 else h, "torch"),
    ],
    ids=["multinomial", "poisson", "own generator", "own generator for masks", "numpy", "python"],
)
def test_what_cannot_be_drawn_from_the_stream_is_refused(draw: Any, words: str) -> None:
    with expect_refusal(key="model", names=words):
        Sums(Net(draw))(torch.ones(NODES, LOT, dtype=torch.bool))


@pytest.mark.parametrize(("draws", "quiet"), [(0, True), (1, True), (9, False)])
def test_a_draw_of_another_thread_is_told_from_the_networks_own(draws: int, quiet: bool) -> None:
    left = [draws]

    def work() -> str:
        if left[0]:
            left[0] -= 1
            random.random()
        return "graph"

    assert undisturbed(work) == ("graph", quiet)
