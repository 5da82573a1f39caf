"""Book-keeping: what it refuses, what it finds out by looking, and where it runs."""

import logging
from collections.abc import Callable

import pytest
import torch
from tests.support.per_sample import CASES, CLASSES, WEIGHS, assert_sum, cross_entropy, problem
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.bookkeeping import BookKeeping, NotSupportedError, rules_of
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.persons import Part
from gossamer.kernels.stack import ParameterStack


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))


class PastTheLayer(nn.Module):
    """Uses its layer's weights once through the layer and once past it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(F.linear(torch.tanh(self.layer(x)), self.layer.weight)))


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(4)), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.scale * x)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.idle, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


@pytest.mark.parametrize("make", [Tied, PastTheLayer, OwnParameter, Unused])
def test_what_has_no_rule_falls_back_with_one_notice(
    make: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    module = make()
    points, x, y = (
        torch.randn(2, ParameterStack(module).dim),
        torch.randn(2, 3, 4),
        torch.randint(0, CLASSES, (2, 3)),
    )
    mask = torch.ones(2, 3, dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy)
    with caplog.at_level(logging.INFO, logger="gossamer"):
        for _ in range(2):
            total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
    assert_sum((total, norms), module, points, x, y, mask, WEIGHS["constant"])
    assert [record.name for record in caplog.records] == ["gossamer"]
    with expect_refusal(key="method", value="book-keeping"):
        ClippedSum(module, cross_entropy, method="book-keeping")(points, x, y, mask, WEIGHS["constant"])


def test_dropout_stays_random_in_training_and_silent_in_evaluation() -> None:
    module, points, x, y = problem("mlp", 2, 64, 6)
    module = nn.Sequential(module[0], nn.Dropout(0.5), module[2])
    mask = torch.ones(2, 64, dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy, method="book-keeping")
    first, second = (kernel(points, x, y, mask, WEIGHS["none"])[0] for _ in range(2))
    assert not torch.equal(first, second)
    module.eval()
    assert_sum(kernel(points, x, y, mask, WEIGHS["none"]), module, points, x, y, mask, WEIGHS["none"])


@pytest.mark.parametrize("case", [case for case in CASES if "tied" not in case])  # on "meta" torch unties weights
def test_everything_stays_on_its_device(case: str) -> None:
    """On the meta device there are no numbers, but an operand left behind on the CPU would be an error."""
    module, points, x, y = problem(case, 3, 4, 7)
    method = BookKeeping(module.to("meta"), cross_entropy, x.to("meta"), y.to("meta"))
    points, mask = points.to("meta"), torch.ones(3, 4, dtype=torch.bool, device="meta")
    part = Part(points, x.to("meta"), y.to("meta"), mask)
    norms = method.weighted(part, WEIGHS["constant"], torch.empty_like(points))
    assert norms.device.type == "meta"
    assert norms.shape == (3, 4)


def test_a_module_that_mixes_records_is_found_out_by_a_lot_of_one(caplog: pytest.LogCaptureFixture) -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x - x.mean(0))

    kernel = ClippedSum(Centred(), lambda out, y: out.square().sum(1))
    ones = torch.ones(1, 1, dtype=torch.bool)
    kernel(torch.zeros(1, 8), torch.randn(1, 1, 3), torch.zeros(1, 1), ones, torch.ones_like)
    assert "vmap" in caplog.text


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Tied(), "two layers share one of their parameters"),
        (OwnParameter(), r"no rule for OwnParameter \(the module itself\)"),
        (nn.Sequential(nn.Flatten(), nn.Bilinear(2, 2, 2)), r"no rule for Bilinear \(1\)"),
        (nn.ReLU(), "the module has no trained parameters"),
    ],
    ids=["shared", "own", "foreign", "none"],
)
def test_a_module_without_rules_is_refused_by_the_name_of_its_layer(module: nn.Module, words: str) -> None:
    with pytest.raises(NotSupportedError, match=words):
        BookKeeping(module, cross_entropy, torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.long))


def test_rules_are_found_by_the_layers_names() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    assert list(rules_of(module)) == ["0", "2.0", "2.1"]


class Repeated(nn.Module):
    """Positions that are made on the way, and one activation and one pool behind two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Linear(4, CLASSES)
        self.places, self.act, self.pool = nn.Embedding(2, 4), nn.ReLU(), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.pool(self.act(self.two(self.pool(self.act(self.one(x))))))
        return self.head(torch.tanh(h.flatten(2) + self.places(torch.arange(2))).mean(1))


def test_layers_without_parameters_may_be_called_again_and_positions_are_each_records_own() -> None:
    torch.manual_seed(3)
    module, x, y = Repeated(), torch.randn(2, 3, 1, 14, 14), torch.randint(0, CLASSES, (2, 3))
    points, mask = 0.2 * torch.randn(2, ParameterStack(module).dim), torch.ones(2, 3, dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy, method="book-keeping")
    for weigh in WEIGHS.values():
        assert_sum(kernel(points, x, y, mask, weigh), module, points, x, y, mask, weigh)


@pytest.mark.parametrize(("module", "shape"), [(nn.Conv1d(1, 2, 2), (1, 2)), (nn.Linear(2, 2), (2,))])
def test_convolutions_are_spread_over_the_cores(module: nn.Module, shape: tuple[int, ...]) -> None:
    net = nn.Sequential(module, nn.Flatten())
    method = BookKeeping(net, cross_entropy, torch.zeros(1, 1, *shape), torch.zeros(1, 1, dtype=torch.long))
    assert method.prefers_threads == isinstance(module, nn.Conv1d)
