"""Every method against per-sample gradients that are spelled out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.per_sample import (
    CASES,
    WEIGHS,
    assert_close,
    assert_sum,
    cross_entropy,
    per_sample_gradients,
    problem,
)
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import memory
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=3, derandomize=True)
@given(
    nodes=st.integers(1, 4),
    lot=st.integers(0, 6),
    seed=st.integers(0, 9),
    weigh=st.sampled_from(sorted(WEIGHS)),
)
def test_sum_and_norms(case: str, nodes: int, lot: int, seed: int, weigh: str) -> None:
    sum_and_norms(case, "book-keeping", nodes, lot, seed, weigh)


@pytest.mark.parametrize("case", CASES)
def test_sum_and_norms_record_by_record(case: str) -> None:
    sum_and_norms(case, "vmap", 3, 4, 1, "constant")


def sum_and_norms(case: str, method: str, nodes: int, lot: int, seed: int, weigh: str) -> None:
    module, points, x, y = problem(case, nodes, lot, seed)
    mask = torch.rand(nodes, lot) < 0.7
    total, norms = ClippedSum(module, cross_entropy, method=method)(points, x, y, mask, WEIGHS[weigh])
    assert_sum((total, norms), module, points, x, y, mask, WEIGHS[weigh])
    assert (norms[~mask] == 0).all()


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("case", ["mlp", "conv twice", "embedding", "group norm"])
@pytest.mark.parametrize("max_bytes", [1, 2000])
def test_slices_change_nothing(case: str, method: str, max_bytes: int) -> None:
    module, points, x, y = problem(case, 3, 7, 2)
    mask = torch.rand(3, 7) < 0.6
    kernel = ClippedSum(module, cross_entropy, method=method, max_bytes=max_bytes)
    total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
    assert_sum((total, norms), module, points, x, y, mask, WEIGHS["constant"])


@pytest.mark.parametrize("case", ["mlp", "conv twice", "embedding", "residual"])
def test_nodes_one_by_one_or_together(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, points, x, y = problem(case, 5, 4, 3)
    mask = torch.ones(5, 4, dtype=torch.bool)
    together, _ = ClippedSum(module, cross_entropy)(points, x, y, mask, WEIGHS["constant"])
    monkeypatch.setattr(memory, "TILE_BYTES", 1)
    loop, _ = ClippedSum(module, cross_entropy)(points, x, y, mask, WEIGHS["constant"])
    assert_close(loop, together.double())


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("case", ["conv twice", "residual"])
def test_slices_side_by_side(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(memory, "TILE_BYTES", 40_000)
    module, points, x, y = problem(case, 9, 4, 3)
    mask = torch.rand(9, 4) < 0.8
    kernel = ClippedSum(module, cross_entropy, method="book-keeping")
    for _ in range(3):
        total, norms = kernel(points, x, y, mask, WEIGHS["constant"])
        assert_sum((total, norms), module, points, x, y, mask, WEIGHS["constant"])
    assert torch.get_num_threads() == 2


@given(
    nodes=st.integers(1, 300),
    lot=st.integers(1, 600),
    size=st.integers(1, 10**7),
    limit=st.integers(1, 10**10),
    cores=st.integers(1, 8),
)
def test_slices_keep_within_memory(nodes: int, lot: int, size: int, limit: int, cores: int) -> None:
    plan = memory.slices(nodes, lot, size, limit, cores)
    assert 1 <= plan.nodes <= nodes
    assert 1 <= plan.records <= lot
    assert not (plan.parallel and cores == 1)
    at_once = min(cores, -(-nodes // plan.nodes)) if plan.parallel else 1
    assert at_once * plan.nodes * plan.records * size <= max(limit, at_once * size)


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("case", ["mlp", "conv", "layer norm", "embedding", "group norm"])
@pytest.mark.parametrize("garbage", [float("nan"), 1e30])
def test_masked_rows_may_hold_anything(case: str, method: str, garbage: float) -> None:
    module, points, x, y = problem(case, 3, 5, 4)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    x[~mask] = garbage if x.is_floating_point() else 10**6
    y[~mask] = -1
    total, norms = ClippedSum(module, cross_entropy, method=method)(points, x, y, mask, WEIGHS["normalised"])
    assert_sum((total, norms), module, points, x, y, mask, WEIGHS["normalised"])
    assert (total[1] == 0).all()


def test_an_untouched_batch_and_module() -> None:
    """Inputs, module and points are read only, and a second call gives the same numbers."""
    module, points, x, y = problem("conv", 2, 3, 5)
    before = [t.clone() for t in (points, x, y, *module.parameters())]
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    kernel = ClippedSum(module, cross_entropy)
    first, second = (kernel(points, x, y, mask, WEIGHS["none"])[0] for _ in range(2))
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(before, (points, x, y, *module.parameters()), strict=True))
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_double_precision_works_too() -> None:
    module, points, x, y = problem("conv twice", 2, 3, 8)
    mask = torch.ones(2, 3, dtype=torch.bool)
    total, norms = ClippedSum(module.double(), cross_entropy, method="book-keeping")(
        points.double(), x.double(), y, mask, WEIGHS["constant"]
    )
    gradients = per_sample_gradients(module, cross_entropy, points.double(), x.double(), y)
    assert torch.allclose(norms, gradients.norm(dim=2), rtol=1e-3)
    wanted = torch.einsum("mb,mbd->md", WEIGHS["constant"](norms), gradients)
    assert torch.allclose(total, wanted, rtol=1e-12, atol=1e-13)


def test_other_losses() -> None:
    """Real targets of several outputs."""
    torch.manual_seed(0)
    module = nn.Linear(4, 2)
    points, x, y = torch.randn(3, 10), torch.randn(3, 5, 4), torch.randn(3, 5, 2)
    mask = torch.ones(3, 5, dtype=torch.bool)

    def square(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(-1)

    results = [ClippedSum(module, square, method=m)(points, x, y, mask, WEIGHS["constant"]) for m in ("auto", "vmap")]
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)


def test_unknown_method() -> None:
    with expect_refusal(key="method", value="ghost"):
        ClippedSum(nn.Linear(2, 2), cross_entropy, method="ghost")


class Reads(nn.Module):
    """Records are places in a table."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        self.table, self.head, self.twice = nn.Embedding(10, 4), nn.Linear(4, 3), twice

    def forward(self, x: Tensor) -> Tensor:
        read = self.table(x).mean(1)
        return self.head(read + self.table(x).amax(1) if self.twice else read)


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize(("place", "node"), [(12, 0), (-3, 1), (12, 1), (10**6, 0), (-(10**6), 1)])
def test_a_place_outside_of_the_table_moves_nothing(method: str, place: int, node: int) -> None:
    """All nodes' tables lie below each other: place 12 of node 0 was place 2 of node 1."""
    torch.manual_seed(0)
    module = Reads(twice=method == "vmap")
    kernel = ClippedSum(module, lambda out, y: F.cross_entropy(out, y, reduction="none"), method=method)
    points = torch.randn(2, ParameterStack(module).dim)
    x, y = torch.randint(0, 10, (2, 3, 5)), torch.randint(0, 3, (2, 3))
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[node, 0] = False
    without, _ = kernel(points, x, y, mask, lambda n: (1 / n).clamp_max(1))
    x[node, 0, 2] = place
    with_it, norms = kernel(points, x, y, torch.ones_like(mask), lambda n: (1 / n).clamp_max(1))
    assert norms[node, 0] == 0
    torch.testing.assert_close(with_it, without, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
def test_numbers_may_be_places_and_those_in_no_table_move_nothing(method: str) -> None:
    """The made-up records of the second look are in no table: the module is not refused for that."""
    torch.manual_seed(0)

    class OfNumbers(Reads):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.long())

    kernel = ClippedSum(OfNumbers(twice=False), lambda out, y: F.cross_entropy(out, y, reduction="none"), method=method)
    x, y = torch.randint(0, 10, (2, 3, 5)).float(), torch.randint(0, 3, (2, 3))
    x[0, 1, 0], x[1, 2, 3] = 12.0, torch.nan
    points = torch.randn(2, ParameterStack(OfNumbers(twice=False)).dim)
    total, norms = kernel(points, x, y, torch.ones(2, 3, dtype=torch.bool), torch.ones_like)
    assert bool(total.isfinite().all())
    assert (norms == 0).tolist() == [[False, True, False], [False, False, True]]
