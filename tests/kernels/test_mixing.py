import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.kernels import mixing
from gossamer.kernels.mixing import MixPlan


def column_stochastic(nodes: int, density: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    P = rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < density) + np.eye(nodes)
    return P / P.sum(0)


@settings(deadline=None, max_examples=60)
@given(
    nodes=st.integers(1, 40),
    width=st.integers(0, 300),
    density=st.sampled_from([0.0, 0.05, 0.2, 1.0]),
    seed=st.integers(0, 5),
    double=st.booleans(),
)
def test_against_a_dense_product_in_double(nodes: int, width: int, density: float, seed: int, double: bool) -> None:
    P = column_stochastic(nodes, density, seed)
    dtype = torch.float64 if double else torch.float32
    A = torch.randn(nodes, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    wanted = torch.from_numpy(P) @ A.double()
    for matrix in (P, scipy.sparse.csr_array(P), scipy.sparse.coo_array(P), scipy.sparse.csr_matrix(P)):
        result = MixPlan(matrix)(A)
        assert result.dtype == dtype
        assert torch.allclose(result.double(), wanted, rtol=0, atol=1e-14 if double else 3e-6)


@pytest.mark.parametrize("least_tile", [100, 4096])
def test_tiles_and_threads_do_not_show(least_tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut by columns, or by rows where these are short."""
    plan = MixPlan(column_stochastic(30, 0.05, 1))
    A = torch.randn(30, 5000)
    whole = plan(A)
    monkeypatch.setattr(mixing, "PARALLEL_TERMS", 0)
    monkeypatch.setattr(mixing, "TILE_BYTES", 0)
    monkeypatch.setattr(mixing, "LEAST_TILE", least_tile)
    monkeypatch.setattr(mixing.threads, "cores", lambda: 3)
    assert torch.equal(plan(A), whole)


def test_the_mean_and_a_consensus_survive() -> None:
    """Column sums of 1 keep Σ x_i; in float32 they stay within 1e-6, and a weight of float64 is exact."""
    for nodes, density in ((20, 0.2), (200, 0.02), (30, 1.0)):
        plan = MixPlan(column_stochastic(nodes, density, 2))
        ones = torch.ones(1, nodes)
        columns = torch.from_numpy(plan.matrix.astype(np.float32).toarray().sum(0))
        assert (columns - 1).abs().max() < 1e-6
        x, w = torch.rand(nodes, 50), torch.ones(nodes, 1, dtype=torch.float64)
        mixed, weights = plan(x), plan(w)
        assert torch.allclose(ones @ mixed, ones @ x, rtol=1e-6)
        assert weights.dtype == torch.float64
        assert abs(float(weights.sum()) - nodes) < 1e-12 * nodes


@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_rows_of_a_part_of_the_nodes_are_those_of_all_to_the_last_bit(density: float) -> None:
    """With the columns that they need alone: so a process with a block of nodes gives the numbers of one with all."""
    P = scipy.sparse.csr_array(column_stochastic(23, density, 3))
    A = torch.randn(23, 1000)
    whole = MixPlan(P)(A)
    for first, last in ((0, 23), (4, 5), (0, 1), (7, 20)):
        needed = np.unique(P[first:last].indices)
        assert torch.equal(MixPlan(P[first:last][:, needed])(A[needed]), whole[first:last])


def test_a_permutation_moves_whole_numbers_as_they_are() -> None:
    order = np.random.default_rng(0).permutation(12)
    plan = MixPlan(np.eye(12)[order])
    assert plan.moves
    A = torch.randint(-(2**63), 2**63 - 1, (12, 3, 50))
    assert torch.equal(plan(A), A[order])
    assert torch.equal(MixPlan(np.eye(12)[order][3:7])(A), A[order[3:7]])
    for other in (2 * np.eye(4), np.eye(4) - np.eye(4)[::-1], column_stochastic(4, 1.0, 0)):
        assert not MixPlan(other).moves
        with pytest.raises(ValueError, match="float32 or float64"):
            MixPlan(other)(A[:4])


def test_out_is_filled_and_never_the_input() -> None:
    for density in (0.05, 1.0):
        plan = MixPlan(column_stochastic(30, density, 4))
        A = torch.randn(30, 7)
        out = torch.full_like(A, torch.nan)
        assert plan(A, out) is out
        assert torch.equal(out, plan(A))
        with pytest.raises(ValueError, match="in place"):
            plan(A, A)
        with pytest.raises(ValueError, match="shape"):
            plan(A, out[:, :3])
    with pytest.raises(ValueError, match="rows"):
        plan(A[:4])
    with pytest.raises(ValueError, match="float32"):
        plan(A.half())


def test_a_strided_input_is_read_and_left_alone() -> None:
    plan = MixPlan(column_stochastic(30, 0.05, 5))
    base = torch.randn(30, 20)
    before = base.clone()
    assert torch.equal(plan(base[:, ::2]), plan(base[:, ::2].contiguous()))
    assert torch.equal(base, before)


@pytest.mark.parametrize("density", [0.05, 1.0])
def test_other_devices_get_the_result_there(density: float) -> None:
    result = MixPlan(column_stochastic(30, density, 6))(torch.empty(30, 4, device="meta"))
    assert result.device.type == "meta"
    assert result.shape == (30, 4)
