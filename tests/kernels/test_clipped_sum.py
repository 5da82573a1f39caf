"""Every method against per-sample gradients that are spelled out."""

import logging
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.errors import UserError
from gossamer.kernels import clipped_sum as engine
from gossamer.kernels import layers, threads
from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import clipped_sum
from gossamer.kernels.oracle import per_sample_gradients
from gossamer.kernels.stack import ParameterStack

CLASSES = 3
WEIGHS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda norms: (0.5 / norms).clamp(max=1.0),
    "tight": lambda norms: (1e-3 / norms).clamp(max=1.0),
    "loose": lambda norms: (1e3 / norms).clamp(max=1.0),
    "normalised": lambda norms: 1 / (norms + 0.01),
    "none": torch.ones_like,
}


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def net(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules, nn.Flatten(), nn.LazyLinear(CLASSES))


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Residual(nn.Module):
    """Two branches into one sum, an in-place ReLU on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1, bias=False)
        self.norm, self.act = nn.GroupNorm(3, 3), nn.ReLU(inplace=True)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.norm(self.first(x)) + self.second(x)).mean((2, 3)))


IMAGE = (2, 8, 7)
# name -> (feature shape, number of indices or None for real features, module)
CASES: dict[str, tuple[tuple[int, ...], int | None, Callable[[], nn.Module]]] = {
    "linear": ((6,), None, lambda: nn.Linear(6, CLASSES)),
    "linear without bias": ((6,), None, lambda: nn.Linear(6, CLASSES, bias=False)),
    "mlp": ((6,), None, lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, CLASSES))),
    "linear on short sequences": ((2, 9), None, lambda: net(nn.Linear(9, 12), nn.Tanh(), Mean())),
    "linear on long sequences": ((30, 2), None, lambda: net(nn.Linear(2, 3), nn.Tanh(), Mean())),
    "linear on images": (IMAGE, None, lambda: net(nn.Linear(7, 4, bias=False), nn.Tanh())),
    "conv": (IMAGE, None, lambda: net(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))),
    "conv strided": (
        IMAGE,
        None,
        lambda: net(nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(1, 2)), nn.Tanh()),
    ),
    "conv dilated": (IMAGE, None, lambda: net(nn.Conv2d(2, 3, 2, dilation=(2, 3), bias=False), nn.Tanh())),
    "conv grouped": (IMAGE, None, lambda: net(nn.Conv2d(2, 6, 3, groups=2, padding=1), nn.Tanh())),
    "conv twice": (IMAGE, None, lambda: net(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, groups=2))),
    "conv of one channel": ((1, 8, 7), None, lambda: net(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU())),
    "conv wide": (
        (2, 3, 3),
        None,
        lambda: net(nn.Conv2d(2, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 50, 3)),
    ),
    "conv same": (IMAGE, None, lambda: net(nn.Conv2d(2, 3, (3, 5), padding="same"), nn.Tanh())),
    "conv reflected": (
        IMAGE,
        None,
        lambda: net(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh()),
    ),
    "conv 1d": ((3, 12), None, lambda: net(nn.Conv1d(3, 4, 3, stride=2, padding=1, dilation=2), nn.Tanh())),
    "conv 1d grouped": ((4, 9), None, lambda: net(nn.Conv1d(4, 4, 3, groups=4), nn.Conv1d(4, 2, 1))),
    "embedding": ((5,), 7, lambda: net(nn.Embedding(7, 4), Mean(), nn.Tanh())),
    "embedding padded": ((5,), 7, lambda: net(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 3), nn.Tanh())),
    "group norm": (IMAGE, None, lambda: net(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())),
    "group norm on features": ((6,), None, lambda: net(nn.GroupNorm(2, 6), nn.Tanh())),
    "layer norm": ((6,), None, lambda: net(nn.LayerNorm(6), nn.Tanh())),
    "layer norm on sequences": (
        (3, 6),
        None,
        lambda: net(nn.LayerNorm((3, 6)), nn.Linear(6, 5), nn.LayerNorm(5)),
    ),
    "layer norm without bias": ((3, 6), None, lambda: net(nn.LayerNorm(6, bias=False), nn.Tanh())),
    "residual": (IMAGE, None, Residual),
}


def problem(case: str, nodes: int, lot: int, seed: int) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A module, every node's point, x and y; small weights, so that no softmax saturates and loses digits."""
    torch.manual_seed(seed)
    shape, vocabulary, make = CASES[case]
    features = (nodes, lot, *shape)
    x = torch.randn(features) if vocabulary is None else torch.randint(0, vocabulary, features)
    module = make()
    module(torch.zeros(1, *shape, dtype=x.dtype))  # settles the lazy head
    dim = ParameterStack(module).dim
    return module, 0.15 * torch.randn(nodes, dim), x, torch.randint(0, CLASSES, (nodes, lot))


def expected(
    module: nn.Module, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """In double precision."""
    module = module.double()
    x = x.double() if x.is_floating_point() else x
    gradients = per_sample_gradients(module, cross_entropy, points.double(), x, y)
    norms = gradients.norm(dim=2) * mask
    weights = torch.where(mask, weigh(norms), 0.0)
    module.float()
    return torch.einsum("mb,mbd->md", weights, gradients), norms


def assert_close(actual: Tensor, wanted: Tensor) -> None:
    assert actual.dtype == torch.float32
    assert torch.isfinite(actual).all()
    for own, reference in zip(actual.double(), wanted, strict=True):
        assert (own - reference).norm() <= 1e-5 * reference.norm() + 1e-9


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=6, derandomize=True)
@given(
    nodes=st.integers(1, 4),
    lot=st.integers(0, 6),
    seed=st.integers(0, 9),
    weigh=st.sampled_from(sorted(WEIGHS)),
)
def test_sum_and_norms(case: str, method: str, nodes: int, lot: int, seed: int, weigh: str) -> None:
    module, points, x, y = problem(case, nodes, lot, seed)
    mask = torch.rand(nodes, lot) < 0.7
    wanted = expected(module, points, x, y, mask, WEIGHS[weigh])
    total, norms = clipped_sum(module, cross_entropy, method=method)(points, x, y, mask, WEIGHS[weigh])
    assert_close(total, wanted[0])
    assert_close(norms, wanted[1])
    assert (norms[~mask] == 0).all()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("small_windows", "passes"), [(0, 20), (0, 0), (1 << 30, 0), (1 << 30, 1 << 30)])
def test_every_branch_of_the_cost_model(
    case: str, small_windows: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Library or product, Gram or instantiated: forced each way, the sum is the same."""
    monkeypatch.setattr(layers, "SMALL_WINDOWS", small_windows)
    monkeypatch.setattr(layers, "MEMORY_PASSES", passes)
    monkeypatch.setattr(layers, "CACHE_BYTES", 1000)
    module, points, x, y = problem(case, 3, 4, 1)
    mask = torch.ones(3, 4, dtype=torch.bool)
    wanted = expected(module, points, x, y, mask, WEIGHS["constant"])
    total, norms = clipped_sum(module, cross_entropy, method="book-keeping")(
        points, x, y, mask, WEIGHS["constant"]
    )
    assert_close(total, wanted[0])
    assert_close(norms, wanted[1])


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("case", ["mlp", "conv twice", "embedding", "group norm"])
@pytest.mark.parametrize("max_bytes", [1, 2000, 20_000])
def test_slices_change_nothing(case: str, method: str, max_bytes: int) -> None:
    module, points, x, y = problem(case, 3, 7, 2)
    mask = torch.rand(3, 7) < 0.6
    wanted = expected(module, points, x, y, mask, WEIGHS["constant"])
    kernel = clipped_sum(module, cross_entropy, method=method, max_bytes=max_bytes)
    total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
    assert_close(total, wanted[0])
    assert_close(norms, wanted[1])


@pytest.mark.parametrize("case", ["mlp", "conv twice", "embedding", "residual"])
def test_nodes_one_by_one_or_together(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, points, x, y = problem(case, 5, 4, 3)
    mask = torch.ones(5, 4, dtype=torch.bool)
    together, _ = clipped_sum(module, cross_entropy)(points, x, y, mask, WEIGHS["constant"])
    monkeypatch.setattr(engine, "TILE_BYTES", 1)
    loop, _ = clipped_sum(module, cross_entropy)(points, x, y, mask, WEIGHS["constant"])
    assert_close(loop, together.double())


@pytest.fixture
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("case", ["conv twice", "residual"])
def test_slices_side_by_side(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(engine, "TILE_BYTES", 40_000)
    module, points, x, y = problem(case, 9, 4, 3)
    mask = torch.rand(9, 4) < 0.8
    wanted = expected(module, points, x, y, mask, WEIGHS["constant"])
    kernel = clipped_sum(module, cross_entropy, method="book-keeping")
    for _ in range(3):
        total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
        assert_close(total, wanted[0])
        assert_close(norms, wanted[1])
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_cores")
def test_an_error_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads.run_all(lambda part: 1 // part.start, threads.even_slices(10, 2))


@given(
    nodes=st.integers(1, 300),
    lot=st.integers(1, 600),
    size=st.integers(1, 10**7),
    limit=st.integers(1, 10**10),
    cores=st.integers(1, 8),
)
def test_slices_keep_within_memory(nodes: int, lot: int, size: int, limit: int, cores: int) -> None:
    plan = engine.slices(nodes, lot, size, limit, cores)
    assert 1 <= plan.nodes <= nodes
    assert 1 <= plan.records <= lot
    assert not (plan.parallel and cores == 1)
    at_once = min(cores, -(-nodes // plan.nodes)) if plan.parallel else 1
    assert at_once * plan.nodes * plan.records * size <= max(limit, at_once * size)


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("case", ["mlp", "conv", "layer norm", "embedding", "group norm"])
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30, 0.0])
def test_masked_rows_may_hold_anything(case: str, method: str, garbage: float) -> None:
    module, points, x, y = problem(case, 3, 5, 4)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    wanted = expected(module, points, x, y, mask, WEIGHS["normalised"])
    x[~mask] = garbage if x.is_floating_point() else 10**6
    y[~mask] = -1
    total, norms = clipped_sum(module, cross_entropy, method=method)(points, x, y, mask, WEIGHS["normalised"])
    assert_close(total, wanted[0])
    assert_close(norms, wanted[1])
    assert (total[1] == 0).all()


def test_an_untouched_batch_and_module() -> None:
    """Inputs, module and points are read only, and a second call gives the same numbers."""
    module, points, x, y = problem("conv", 2, 3, 5)
    before = [t.clone() for t in (points, x, y, *module.parameters())]
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    kernel = clipped_sum(module, cross_entropy)
    first, second = (kernel(points, x, y, mask, WEIGHS["none"])[0] for _ in range(2))
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(before, (points, x, y, *module.parameters()), strict=True))
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


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


@pytest.mark.parametrize("make", [Twice, Tied, PastTheLayer, OwnParameter, Unused])
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
    kernel = clipped_sum(module, cross_entropy)
    with caplog.at_level(logging.INFO, logger="gossamer"):
        for _ in range(2):
            total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
    wanted = expected(module, points, x, y, mask, WEIGHS["constant"])
    assert_close(total, wanted[0])
    assert_close(norms, wanted[1])
    assert [record.name for record in caplog.records] == ["gossamer"]
    with pytest.raises(UserError, match="book-keeping"):
        clipped_sum(module, cross_entropy, method="book-keeping")(points, x, y, mask, WEIGHS["constant"])


def test_a_module_that_mixes_records_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x - x.mean(0, keepdim=True).detach() * (len(x) > 1))

    torch.manual_seed(0)
    module = Centred()
    mask = torch.ones(1, 3, dtype=torch.bool)
    clipped_sum(module, cross_entropy)(
        torch.randn(1, 15), torch.randn(1, 3, 4), torch.zeros(1, 3, dtype=torch.long), mask, WEIGHS["none"]
    )
    assert "differ" in caplog.text


def test_dropout_stays_random_in_training_and_silent_in_evaluation() -> None:
    module, points, x, y = problem("mlp", 2, 64, 6)
    module = nn.Sequential(module[0], nn.Dropout(0.5), module[2])
    mask = torch.ones(2, 64, dtype=torch.bool)
    kernel = clipped_sum(module, cross_entropy, method="book-keeping")
    first, second = (kernel(points, x, y, mask, WEIGHS["none"])[0] for _ in range(2))
    assert not torch.equal(first, second)
    module.eval()
    assert_close(
        kernel(points, x, y, mask, WEIGHS["none"])[0], expected(module, points, x, y, mask, WEIGHS["none"])[0]
    )


@pytest.mark.parametrize("case", CASES)
def test_everything_stays_on_its_device(case: str) -> None:
    """On the meta device there are no numbers, but an operand left behind on the CPU would be an error."""
    module, points, x, y = problem(case, 3, 4, 7)
    method = BookKeeping(module.to("meta"), cross_entropy)
    target, mask = points.to("meta"), torch.ones(3, 4, dtype=torch.bool, device="meta")
    norms = method.weighted(
        points.to("meta"), x.to("meta"), y.to("meta"), mask, WEIGHS["constant"], target=target, add=False
    )
    assert norms.device.type == "meta"
    assert norms.shape == (3, 4)


def test_double_precision_works_too() -> None:
    module, points, x, y = problem("conv twice", 2, 3, 8)
    mask = torch.ones(2, 3, dtype=torch.bool)
    wanted = expected(module, points, x, y, mask, WEIGHS["constant"])
    total, norms = clipped_sum(module.double(), cross_entropy, method="book-keeping")(
        points.double(), x.double(), y, mask, WEIGHS["constant"]
    )
    assert torch.allclose(total, wanted[0], rtol=1e-12, atol=1e-13)
    assert torch.allclose(norms, wanted[1], rtol=1e-12)


def test_other_losses() -> None:
    """Real targets of several outputs."""
    torch.manual_seed(0)
    module = nn.Linear(4, 2)
    points, x, y = torch.randn(3, 10), torch.randn(3, 5, 4), torch.randn(3, 5, 2)
    mask = torch.ones(3, 5, dtype=torch.bool)

    def square(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(-1)

    results = [
        clipped_sum(module, square, method=m)(points, x, y, mask, WEIGHS["constant"])
        for m in ("auto", "vmap")
    ]
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)


def test_unknown_method() -> None:
    with pytest.raises(UserError, match="ghost"):
        clipped_sum(nn.Linear(2, 2), cross_entropy, method="ghost")


EXTREME = [1e19, 1e30, 3e38]


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("size", EXTREME)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_record_without_a_finite_norm_is_left_out(method: str, size: float, hidden: bool) -> None:
    """One record of 1e20 must not make the sum NaN: no noise would hide that."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)) if hidden else nn.Linear(5, 3)
    kernel = clipped_sum(
        net, lambda out, y: nn.functional.cross_entropy(out, y, reduction="none"), method=method
    )
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


def test_cancelling_gram_sums_do_not_hide_a_large_gradient() -> None:
    """Inputs of mean 3000 before a GroupNorm: the terms of the Gram sum cancel, the gradient does not."""
    clip = lambda norms: (0.1 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    for seed in range(12):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(16, 32, 3), nn.GroupNorm(32, 32, affine=False), nn.Flatten(), nn.Linear(32 * 36, 4)
        )
        kernel = clipped_sum(net, lambda out, y: nn.functional.cross_entropy(out, y, reduction="none"))
        points = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
        x, y = torch.randn(1, 1, 16, 8, 8) + 3000, torch.zeros(1, 1, dtype=torch.long)
        total, _ = kernel(points, x, y, torch.ones(1, 1, dtype=torch.bool), clip)
        assert float(total.norm()) <= 0.1 * (1 + 1e-3)


def test_a_module_that_mixes_records_is_found_out_by_a_lot_of_one(caplog: pytest.LogCaptureFixture) -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x - x.mean(0))

    kernel = clipped_sum(Centred(), lambda out, y: out.square().sum(1))
    ones = torch.ones(1, 1, dtype=torch.bool)
    kernel(torch.zeros(1, 8), torch.randn(1, 1, 3), torch.zeros(1, 1), ones, torch.ones_like)
    assert "vmap" in caplog.text
