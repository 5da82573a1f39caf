"""A record without a finite gradient norm is left out, and nothing else is."""

from collections.abc import Callable

import pytest
import torch
from tests.support import mixing
from tests.support.per_sample import WEIGHS, cross_entropy
from torch import Tensor, nn

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.persons import Persons
from gossamer.kernels.rounding import NotFiniteError, refuse_infinite

EXTREME = [1e19, 1e30, 3e38]


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("size", EXTREME)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_record_without_a_finite_norm_is_left_out(method: str, size: float, hidden: bool) -> None:
    """One record of 1e20 must not make the sum NaN: no noise would hide that."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)) if hidden else nn.Linear(5, 3)
    kernel = ClippedSum(net, lambda out, y: nn.functional.cross_entropy(out, y, reduction="none"), method=method)
    points = torch.cat([p.detach().flatten() for p in net.parameters()]).repeat(2, 1)
    x, y = torch.randn(2, 4, 5), torch.zeros(2, 4, dtype=torch.long)
    mask = torch.ones(2, 4, dtype=torch.bool)
    clip = lambda norms: (1.0 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    without = mask.clone()
    without[1, 2] = False
    expected, _ = kernel(points, x, y, without, clip)
    x[1, 2] = size
    total, norms = kernel(points, x, y, mask, clip)
    assert torch.isfinite(total).all()
    assert torch.isfinite(norms).all()
    moved = (total - expected).norm(dim=1)
    assert moved[0] < 1e-6
    assert moved[1] <= 1.0 + 1e-4


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_the_error_says_which_records(bad: float) -> None:
    norms = torch.tensor([[1.0, 3e38], [bad, 0.0]])
    with pytest.raises(NotFiniteError) as caught:
        refuse_infinite(norms)
    assert caught.value.records.tolist() == [[False, False], [True, False]]


def test_finite_norms_and_mere_shapes_pass() -> None:
    refuse_infinite(torch.tensor([[0.0, 3e38]]))
    refuse_infinite(torch.empty(0, 3))
    refuse_infinite(torch.empty(2, 3, device="meta"))


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
@pytest.mark.parametrize("own_units", [False, True])
def test_the_others_of_a_lot_keep_their_sum(method: str, max_bytes: int, own_units: bool) -> None:
    """In any slice, with every node's own bound: a record that is not finite is as if it were not there."""
    torch.manual_seed(0)
    module = mixing.Standardised()
    points = torch.randn(3, sum(p.numel() for p in module.parameters()))
    x, y = torch.randn(3, 5, mixing.FEATURES), torch.randint(0, mixing.CLASSES, (3, 5))
    mask = torch.ones(3, 5, dtype=torch.bool)
    unit = torch.tensor([0.5, 2.0, 7.0]) if own_units else None
    kernel = ClippedSum(module, cross_entropy, method=method, max_bytes=max_bytes)
    weigh = WEIGHS["constant"]
    x[0, 4], x[1, 0], x[1, 3] = 3.0, torch.nan, torch.inf  # the first is constant: 0 / 0
    total, norms = kernel(points, x, y, mask, weigh, unit=unit)
    gone = torch.zeros_like(mask)
    gone[0, 4] = gone[1, 0] = gone[1, 3] = True
    assert (norms[gone] == 0).all()
    assert (norms[~gone] > 0).all()
    x[gone] = torch.randn(mixing.FEATURES)
    without, _ = kernel(points, x, y, mask & ~gone, weigh, unit=unit)
    torch.testing.assert_close(total, without, rtol=1e-6, atol=1e-7)


def test_a_lot_of_nothing_else_sums_to_zero() -> None:
    module = mixing.Standardised()
    points = torch.randn(2, sum(p.numel() for p in module.parameters()))
    x, y = torch.zeros(2, 3, mixing.FEATURES), torch.zeros(2, 3, dtype=torch.long)
    x[1] = torch.randn(3, mixing.FEATURES)
    total, norms = ClippedSum(module, cross_entropy)(
        points, x, y, torch.ones(2, 3, dtype=torch.bool), WEIGHS["constant"]
    )
    assert (total[0] == 0).all()
    assert (norms[0] == 0).all()
    assert total[1].isfinite().all()
    assert (norms[1] > 0).all()


class Looks(nn.Module):
    """Fails on records whose values are places outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.gather(1, x.long()))


class Chances(nn.Module):
    """Fails on records with values outside of 0 … 1; is book-kept."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.binary_cross_entropy(x, x, reduction="none"))


@pytest.mark.parametrize("make", [Looks, Chances])
@pytest.mark.parametrize("together", [False, True])
def test_a_record_on_which_the_module_fails_is_left_out(make: type[nn.Module], together: bool) -> None:
    torch.manual_seed(0)
    module, x, y = make(), torch.rand(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64)
    points = 0.1 * torch.randn(2, 15)
    of, counts = torch.tensor([[0, 1, 1, 2, 2]] * 2), torch.tensor([[1, 2, 2]] * 2)
    persons = Persons(of, counts) if together else None
    kernel = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
    clip = lambda norms: (1 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    everyone = torch.ones(2, 5, dtype=torch.bool)
    without, fewer = everyone.clone(), counts.clone()
    without[0, [1, 2] if together else [1]], fewer[0, 1] = False, 0
    x[0, 1] = 99.0
    found = kernel(points, x, y, everyone, clip, persons=persons)
    expected = kernel(points, x, y, without, clip, persons=Persons(of, fewer) if together else None)
    assert found[1][0, 1] == 0
    assert bool((found[1][0, [0, 2]] > 0).all())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


class Behind(nn.Module):
    """A linear layer behind a function of the record."""

    def __init__(self, prepare: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.prepare, self.head = prepare, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.prepare(x))


def sampled(x: Tensor) -> Tensor:
    image, grid = x.view(-1, 1, 2, 2), x.view(-1, 2, 1, 2).expand(-1, 2, 2, 2)
    return nn.functional.grid_sample(image, grid, padding_mode="border", align_corners=False).flatten(1)


def eigenvalues(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.linalg.eigvals(x.view(-1, 2, 2))).flatten(1)


def negated(x: Tensor) -> Tensor:
    return torch.div(x.long(), -1, rounding_mode="trunc").float()


@pytest.mark.parametrize(
    ("prepare", "value", "left_out"),
    [(sampled, torch.nan, True), (eigenvalues, torch.nan, True), (negated, -(2.0**63), False)],
)
def test_no_record_ends_the_process(prepare: Callable[[Tensor], Tensor], value: float, left_out: bool) -> None:
    """Of these operations torch's own loops end in a signal of the processor, which nothing can catch."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64)
    x[0, 1, 0] = value
    points, everyone = 0.1 * torch.randn(2, 15), torch.ones(2, 5, dtype=torch.bool)
    without = everyone.clone()
    without[0, 1] = False
    kernel = ClippedSum(Behind(prepare), nn.CrossEntropyLoss(reduction="none"))
    clip = lambda norms: (1 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    found, expected = (kernel(points, x, y, mask, clip) for mask in (everyone, without))
    assert (found[1][0, 1] == 0) == left_out
    torch.testing.assert_close(found[1][without], expected[1][without], rtol=0, atol=0)
    assert float((found[0] - expected[0])[0].norm()) <= (0 if left_out else 1 + 1e-6)
    assert torch.equal(found[0][1], expected[0][1])


class Lookup(nn.Module):
    """Fails where a record times the model's number is outside of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.head = nn.Parameter(torch.ones(1)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        place = (x[:, :1] * self.factor.detach()).long()
        return self.head(x) + x.gather(1, place)


def test_a_record_that_fails_with_another_nodes_model_stands_in_with_its_own() -> None:
    """All records of node 0 fail with its model, and so would node 1's; nothing of node 1 changes."""
    torch.manual_seed(0)
    module, x, y = Lookup(), 1 + torch.rand(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)
    points = 0.1 * torch.randn(2, 16)
    points[0, 0], points[1, 0] = 50.0, 1.0
    mask = torch.ones(2, 3, dtype=torch.bool)
    total, norms = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))(points, x, y, mask, torch.ones_like)
    assert bool((total[0] == 0).all())
    assert norms[0].tolist() == [0, 0, 0]
    assert bool((norms[1] > 0).all())
    plain = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
    alone, _ = plain(points[1:], x[1:], y[1:], mask[1:], torch.ones_like)
    torch.testing.assert_close(total[1:], alone)


def test_what_is_no_records_fault_is_raised() -> None:
    module, x = nn.Linear(4, 3), torch.rand(1, 2, 4)
    kernel = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
    y, mask = torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool)
    kernel.try_on(x, y)

    def weigh(norms: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        kernel(torch.zeros(1, 15), x, y, mask, weigh)
