"""Networks that are almost a chain of linear layers are not taken for one."""

from collections.abc import Callable

import pytest
import torch
from tests.support.per_sample import CLASSES, cross_entropy
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.dense import layers_of
from gossamer.kernels.stack import ParameterStack


def softmax() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES))


def test_layers_are_told_by_their_sizes_and_places() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 4, bias=False), nn.ReLU(), nn.Linear(4, CLASSES))
    x, y = torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, dtype=torch.long)
    found = layers_of(BookKeeping(module, cross_entropy, x, y), x, y)
    assert found is not None
    assert found.tolist() == [[6, 4, 0, -1], [4, CLASSES, 24, 24 + 4 * CLASSES]]


def _with_loss(**options: object) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda out, y: F.cross_entropy(out, y, **options)  # type: ignore[arg-type]


class Twice(nn.Module):
    """Reads its hidden values twice: no chain."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.first(x.flatten(1)))
        return self.second(F.relu(hidden + hidden))


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES)), cross_entropy),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, CLASSES)), cross_entropy),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, CLASSES), nn.ReLU()), cross_entropy),
        (lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, CLASSES)), cross_entropy),
        (lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, CLASSES)), cross_entropy),
        (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, CLASSES)), cross_entropy),
        (Twice, cross_entropy),
        (softmax, _with_loss(reduction="none", label_smoothing=0.1)),
        (softmax, _with_loss(reduction="none", ignore_index=1)),
        (softmax, lambda out, y: (out - y[:, None]).square().sum(1)),
        (softmax, lambda out, y: 2 * F.cross_entropy(out, y, reduction="none")),
        (softmax, lambda out, y: F.cross_entropy(-out, y, reduction="none")),
    ],
    ids=["tanh", "no relu", "relu last", "relu first", "sequences", "dropout", "twice", "smoothed", "ignored",
         "squares", "doubled", "negative"],
)  # fmt: skip
def test_what_is_another_network_is_not_compiled(
    make: Callable[[], nn.Module], loss: Callable[[Tensor, Tensor], Tensor]
) -> None:
    torch.manual_seed(0)
    module = make()
    points, x = torch.randn(3, ParameterStack(module).dim), torch.randn(3, 5, 2, 3)
    y = torch.randint(0, CLASSES, (3, 5))
    mask = torch.ones(y.shape, dtype=torch.bool)
    assert layers_of(BookKeeping(module, loss, x, y), x, y) is None
    assert ClippedSum(module, loss)(points, x, y, mask, torch.ones_like)[0].isfinite().all()
