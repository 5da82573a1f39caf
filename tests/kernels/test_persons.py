"""Records of one person are clipped together: against plain gradients, person by person."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.persons import Persons
from gossamer.kernels.stack import ParameterStack

LOSS = nn.CrossEntropyLoss(reduction="none")
COUNTS = torch.tensor([[1, 5, 3, 40], [2, 0, 7, 1]])
C = 0.7


def clip(norms: Tensor) -> Tensor:
    return (C / norms.clamp_min(1e-30)).clamp_max(1)


def laid_out(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(of, mask) of lots with so many records of each person."""
    longest = int(counts.sum(1).max())
    of, mask = (
        torch.zeros(len(counts), longest, dtype=torch.int64),
        torch.zeros(len(counts), longest, dtype=torch.bool),
    )
    for i, own in enumerate(counts):
        total = int(own.sum())
        of[i, :total], mask[i, :total] = torch.repeat_interleave(torch.arange(len(own)), own), True
    return of, mask


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = (
            nn.Embedding(10, 5, padding_idx=3),
            nn.LayerNorm(5),
            nn.Linear(5, 3),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.table(tokens))).mean(1)


def network(sizes: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(sizes, 16), nn.ReLU(), nn.Linear(16, 3))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Flatten(),
        nn.Linear(96, 3),
    )


def pooled() -> nn.Module:
    """Few channels with a pool behind them: convolution and pool are one kernel here."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Tensor]]] = {
    "mlp": (network, lambda m, b: torch.randn(m, b, 6)),
    "wide": (lambda: nn.Linear(300, 3), lambda m, b: torch.randn(m, b, 300)),
    "convolutions": (convolutions, lambda m, b: torch.randn(m, b, 1, 8, 8)),
    "pooled": (pooled, lambda m, b: torch.randn(m, b, 1, 12, 12)),
    "sequence": (lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(18, 3)),
                 lambda m, b: torch.randn(m, b, 2, 8)),
    "tokens": (Tokens, lambda m, b: torch.randint(0, 10, (m, b, 4))),
}  # fmt: skip


def by_hand(
    model: nn.Module, points: Tensor, x: Tensor, y: Tensor, persons: Persons, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Every person's gradient by autograd on all of its records at once."""
    stack, counts = ParameterStack(model), persons.counts
    sums, norms = torch.zeros_like(points), torch.zeros(counts.shape)
    for i in range(len(points)):
        own = {name: view[0].clone().requires_grad_() for name, view in stack.views(points[i : i + 1]).items()}
        for p in range(counts.shape[1]):
            chosen = mask[i] & (persons.of[i] == p)
            if not bool(chosen.any()):
                continue
            losses = LOSS(torch.func.functional_call(model, own, (x[i][chosen],)), y[i][chosen])
            value = losses.mean() if persons.mean else losses.sum()
            gradient = torch.cat([part.flatten() for part in torch.autograd.grad(value, list(own.values()))])
            norms[i, p] = gradient.norm()
            sums[i] += gradient * clip(norms[i, p])
    return sums, norms


@pytest.mark.parametrize(("method", "mean"), [("book-keeping", False), ("book-keeping", True), ("vmap", True)])
@pytest.mark.parametrize("name", MODULES)
def test_persons_are_clipped_as_one(name: str, method: str, mean: bool) -> None:
    torch.manual_seed(0)
    make, records = MODULES[name]
    model, (of, mask) = make(), laid_out(COUNTS)
    x, y = records(*mask.shape), torch.randint(0, 3, mask.shape)
    points = ParameterStack(model).flatten(model).repeat(2, 1) + 0.1 * torch.randn(2, ParameterStack(model).dim)
    persons = Persons(of, COUNTS, mean)
    sums, norms = ClippedSum(model, LOSS, method=method)(points, x, y, mask, clip, persons=persons)
    expected, lengths = by_hand(model, points, x, y, persons, mask)
    assert torch.allclose(sums, expected, atol=3e-3)
    assert bool((norms >= lengths * (1 - 1e-6)).all())
    assert torch.allclose(norms, lengths, rtol=5e-3)


@pytest.mark.parametrize("name", MODULES)
def test_persons_of_one_record_are_records_bit_for_bit(name: str) -> None:
    torch.manual_seed(1)
    make, records = MODULES[name]
    model, counts = make(), torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    of, mask = laid_out(counts)
    x, y = records(*mask.shape), torch.randint(0, 3, mask.shape)
    points = ParameterStack(model).flatten(model).repeat(2, 1)
    kernel = ClippedSum(model, LOSS)
    plain = kernel(points, x, y, mask, clip)
    for mean in (False, True):
        found = kernel(points, x, y, mask, clip, persons=Persons(of, counts, mean))
        assert torch.equal(found[0], plain[0])
        assert torch.equal(found[1], plain[1])


def test_lots_in_slices_keep_persons_whole() -> None:
    torch.manual_seed(2)
    model, (of, mask) = network(), laid_out(COUNTS)
    x, y = torch.randn(*mask.shape, 6), torch.randint(0, 3, mask.shape)
    points = ParameterStack(model).flatten(model).repeat(2, 1)
    persons = Persons(of, COUNTS)
    whole = ClippedSum(model, LOSS)(points, x, y, mask, clip, persons=persons)
    slices = ClippedSum(model, LOSS, max_bytes=5000)(points, x, y, mask, clip, persons=persons)
    assert torch.allclose(whole[0], slices[0], atol=1e-4)
    assert torch.allclose(whole[1], slices[1], rtol=1e-3)


@pytest.mark.parametrize("method", ["auto", "vmap"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_record_that_is_not_finite_leaves_its_person_out_and_nobody_else(method: str, bad: float) -> None:
    torch.manual_seed(3)
    model, (of, mask) = network(), laid_out(COUNTS)
    x, y = torch.randn(*mask.shape, 6), torch.randint(0, 3, mask.shape)
    points = ParameterStack(model).flatten(model).repeat(2, 1)
    kernel, persons = ClippedSum(model, LOSS, method=method), Persons(of, COUNTS)
    x[0, 20] = bad  # of the person with forty
    sums, norms = kernel(points, x, y, mask, clip, persons=persons)
    without = mask.clone()
    without[0, 9:] = False
    counts = COUNTS.clone()
    counts[0, 3] = 0
    expected, _ = kernel(points, torch.randn_like(x).where(~without[..., None], x), y, without, clip,
                         persons=Persons(of, counts))  # fmt: skip
    assert norms[0, 3] == 0
    assert torch.allclose(sums, expected, atol=1e-5)


def test_huge_gradients_that_cancel_within_a_person_do_not_pass_the_clip() -> None:
    """Two records with opposite gradients of 10⁶: their sum is small, and its rounding must not be released."""
    model = nn.Linear(4, 1, bias=False)
    kernel = ClippedSum(model, lambda out, y: out.flatten() * y)
    for pairs in (1, 30, 200):
        counts = torch.tensor([[2 * pairs, 1]])
        of, mask = laid_out(counts)
        x, y = torch.randn(1, 2 * pairs + 1, 4) * 1e6, torch.ones(1, 2 * pairs + 1)
        x[0, 1 : 2 * pairs : 2], y[0, 1 : 2 * pairs : 2] = x[0, 0 : 2 * pairs : 2], -1
        x[0, -1] = 1e-3
        points = torch.zeros(1, 4)
        with_them, _ = kernel(points, x, y, mask, clip, persons=Persons(of, counts))
        without = mask.clone()
        without[0, : 2 * pairs] = False
        others, _ = kernel(points, x, y, without, clip, persons=Persons(of, torch.tensor([[0, 1]])))
        assert float((with_them - others).double().norm()) <= C * (1 + 1e-6)
