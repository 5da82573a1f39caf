"""Compiled networks of linear layers: which they are, and that they are what book-keeping computes."""

from collections.abc import Callable

import pytest
import torch
from tests.support.per_sample import CLASSES, WEIGHS, assert_sum, cross_entropy
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.dense import layers_of, weighted
from gossamer.kernels.persons import Part, Persons
from gossamer.kernels.stack import ParameterStack


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 7), nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x.flatten(1))))


NETS: dict[str, Callable[[], nn.Module]] = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES)),
    "without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES, bias=False)),
    "one hidden layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, CLASSES)),
    "three": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5, bias=False), nn.ReLU(), nn.Linear(5, 4),
        nn.ReLU(), nn.Linear(4, CLASSES),
    ),
    "own forward": Own,
}  # fmt: skip


def given(make: Callable[[], nn.Module], lot: int = 5, nodes: int = 3) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    torch.manual_seed(lot)
    module = make()
    points = ParameterStack(module).flatten(module) + 0.3 * torch.randn(nodes, ParameterStack(module).dim)
    return module, points, torch.randn(nodes, lot, 2, 3), torch.randint(0, CLASSES, (nodes, lot))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("weigh", WEIGHS)
@pytest.mark.parametrize("lot", [1, 11])
def test_sums_and_norms_are_the_gradients(net: str, weigh: str, lot: int) -> None:
    module, points, x, y = given(NETS[net], lot)
    mask = torch.rand(3, lot) < 0.6
    mask[1] = lot > 1
    x[~mask], y[~mask] = torch.nan, 10**6
    kernel = ClippedSum(module, cross_entropy, method="book-keeping")
    assert_sum(kernel(points, x, y, mask, WEIGHS[weigh]), module, points, x, y, mask, WEIGHS[weigh])
    assert kernel.method.layers is not None  # type: ignore[attr-defined]


def test_a_long_softmax_is_the_librarys() -> None:
    """Values of all sizes, lots of all remainders."""
    module = nn.Linear(300, 40)
    points = torch.randn(2, ParameterStack(module).dim)
    x = torch.randn(2, 23, 300) * torch.logspace(-6, 3, 23)[:, None]
    y, mask = torch.randint(0, 40, (2, 23)), torch.ones(2, 23, dtype=torch.bool)
    method = BookKeeping(module, cross_entropy, x, y)
    layers = layers_of(method, x, y)
    assert layers is not None
    first, second = torch.empty_like(points), torch.empty_like(points)
    part = Part(points, x, y, mask)
    norms, _ = weighted(layers, part, WEIGHS["constant"], first)
    wanted = method.weighted(part, WEIGHS["constant"], second)
    torch.testing.assert_close(norms, wanted, rtol=2e-4, atol=1e-12)
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


def test_another_types_numbers_and_persons_go_to_book_keeping() -> None:
    module, points, x, y = given(NETS["one hidden layer"], 6)
    mask = torch.ones(3, 6, dtype=torch.bool)
    kernel = ClippedSum(module.double(), cross_entropy)
    total, _ = kernel(points.double(), x.double(), y, mask, WEIGHS["constant"])
    assert total.dtype == torch.float64
    module, points, x, y = given(NETS["one hidden layer"], 6)
    persons = Persons(torch.tensor([[0, 0, 1, 1, 1, 2]]).expand(3, 6), torch.tensor([[2, 3, 1]]).expand(3, 3))
    kernel = ClippedSum(module, cross_entropy)
    total, norms = kernel(points, x, y, mask, WEIGHS["none"], persons=persons)
    alone, _ = kernel(points, x, y, mask, WEIGHS["none"])
    assert norms.shape == (3, 3)
    torch.testing.assert_close(total, alone, rtol=1e-4, atol=1e-5)


def test_labels_that_are_none_are_the_librarys_matter() -> None:
    module, points, x, y = given(NETS["softmax"])
    mask = torch.ones(y.shape, dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy)
    kernel(points, x, y, mask, WEIGHS["none"])
    y[1, 2] = -100  # the library's "ignore"
    _, norms = kernel(points, x, y, mask, WEIGHS["none"])
    assert norms[1, 2] < 1e-6 < norms[1, 1]
    y[1, 2] = CLASSES  # the library raises: the record is left out
    _, norms = kernel(points, x, y, mask, WEIGHS["none"])
    assert norms[1, 2] == 0 < norms[1, 1]


def test_a_sum_that_overflows_is_not_given_out() -> None:
    module, points, x, y = given(NETS["one hidden layer"])
    mask = torch.ones(y.shape, dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy)
    with pytest.raises(FloatingPointError):
        kernel(points, 1e10 * x, y, mask, lambda norms: torch.full_like(norms, 1e38))
