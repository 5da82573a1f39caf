"""The rules of the layers: every branch of their cost model, and norms that rounding never lowers."""

import pytest
import torch
from tests.support.per_sample import CASES, WEIGHS, assert_sum, cross_entropy, problem
from torch import Tensor, nn

from gossamer.kernels import direct, layers
from gossamer.kernels.clipped_sum import ClippedSum


# Those with layers that have a choice.
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("conv", "linear on", "residual", "group norm"))])
@pytest.mark.parametrize(
    ("small_windows", "passes", "direct_weights"),
    [(0, 20, 0), (0, 0, 0), (1 << 30, 0, 0), (1 << 30, 1 << 30, 0), (0, 0, 1 << 30)],
)
def test_every_branch_of_the_cost_model(
    case: str, small_windows: int, passes: int, direct_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taps, library or product, Gram or instantiated: forced each way, the sum is the same."""
    monkeypatch.setattr(direct, "MOST_WEIGHTS", direct_weights)
    monkeypatch.setattr(direct, "LEAST_PLANE", 1)
    monkeypatch.setattr(layers, "SMALL_WINDOWS", small_windows)
    monkeypatch.setattr(layers, "MEMORY_PASSES", passes)
    monkeypatch.setattr(layers, "CACHE_BYTES", 1000)
    module, points, x, y = problem(case, 3, 4, 1)
    mask = torch.ones(3, 4, dtype=torch.bool)
    total, norms = ClippedSum(module, cross_entropy, method="book-keeping")(points, x, y, mask, WEIGHS["constant"])
    assert_sum((total, norms), module, points, x, y, mask, WEIGHS["constant"])


def test_cancelling_gram_sums_do_not_hide_a_large_gradient() -> None:
    """Inputs of mean 3000 before a GroupNorm: the terms of the Gram sum cancel, the gradient does not."""
    clip = lambda norms: (0.1 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    for seed in range(12):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(16, 32, 3), nn.GroupNorm(32, 32, affine=False), nn.Flatten(), nn.Linear(32 * 36, 4)
        )
        kernel = ClippedSum(net, lambda out, y: nn.functional.cross_entropy(out, y, reduction="none"))
        points = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
        x, y = torch.randn(1, 1, 16, 8, 8) + 3000, torch.zeros(1, 1, dtype=torch.long)
        total, _ = kernel(points, x, y, torch.ones(1, 1, dtype=torch.bool), clip)
        assert float(total.norm()) <= 0.1 * (1 + 1e-6)


def test_every_rule_is_for_exactly_its_type() -> None:
    """A subclass may compute something else, a layer with a further parameter does."""

    class Louder(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    assert layers.rule_for(nn.Linear(2, 3)) is not None
    assert layers.rule_for(Louder(2, 3)) is None
    further = nn.Linear(2, 3)
    further.scale = nn.Parameter(torch.ones(1))
    assert layers.rule_for(further) is None
    assert layers.rule_for(nn.LayerNorm(3, elementwise_affine=False)) is None
    assert layers.rule_for(nn.Bilinear(2, 2, 2)) is None


def test_the_gram_sum_is_the_squared_norm_and_never_less() -> None:
    draw = torch.Generator().manual_seed(0)
    g, a = torch.randn(20, 5, 3, generator=draw), torch.randn(20, 5, 4, generator=draw)
    exact = torch.einsum("nto,nti->noi", g.double(), a.double()).square().sum((1, 2))
    found, sizes = (part.double() for part in layers.gram_sum(g @ g.mT, a @ a.mT, 7))
    assert bool((found >= exact).all())
    sizes = (g.double().norm(dim=2) * a.double().norm(dim=2)).sum(1)
    torch.testing.assert_close(found, exact + layers.CANCELLED * sizes**2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", ["linear on short sequences", "embedding", "conv wide"])
def test_the_norm_of_a_record_does_not_depend_on_the_size_of_the_lot(case: str) -> None:
    """Lots are padded to the largest node's: a bound that grew with them would let one node move another's weights."""
    module, points, x, y = problem(case, 2, 300, 1)
    kernel, norms = ClippedSum(module, cross_entropy, method="book-keeping"), []
    for lot in (3, 300):
        mask = torch.zeros(2, lot, dtype=torch.bool)
        mask[0, :3] = mask[1] = True
        norms.append(kernel(points, x[:, :lot], y[:, :lot], mask, torch.ones_like)[1][0, :3])
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=0)


def test_gram_or_instantiated_by_the_number_of_positions() -> None:
    choices = [layers.gram_is_cheaper(positions, 64, 64) for positions in (1, 8, 24, 64, 512)]
    assert choices == sorted(choices, reverse=True)
    assert choices[0]
    assert not choices[-1]


def test_weighted_rows_by_hand() -> None:
    weights = torch.tensor([[1.0, 2.0], [0.0, 0.5]])
    rows = torch.arange(12.0).view(4, 3)  # two nodes with two records each
    expected_sums = [[0 + 2 * 3.0, 1 + 2 * 4.0, 2 + 2 * 5.0], [0.5 * 9, 0.5 * 10, 0.5 * 11]]
    assert layers.weighted_rows(weights, rows, 2).tolist() == expected_sums
    assert layers.by_node(rows, 2).shape == (2, 2, 3)


@pytest.mark.parametrize("clip", [1e-3, 1e-6])
def test_gram_norms_see_what_underflows_in_one_factor_and_is_large_in_the_other(clip: float) -> None:
    """g g' = 1e-46 is 0 in float32, a a' = 1e36 is not: together they are a gradient of 2.6e-3."""
    kernel = ClippedSum(nn.Linear(64, 64, bias=False), lambda out, y: 1e-23 * out.sum((1, 2)))
    total, _ = kernel(
        torch.zeros(1, 64 * 64),
        torch.full((1, 1, 4, 64), 1e18),
        torch.zeros(1, 1),
        torch.ones(1, 1, dtype=torch.bool),
        lambda norms: (clip / norms.clamp_min(1e-30)).clamp_max(1),
    )
    assert float(total.double().norm()) <= clip * (1 + 1e-6)
