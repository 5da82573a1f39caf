"""Per-sample gradients: one autograd call per record, and a closed form."""

from __future__ import annotations

import pytest
import torch
from tests.support.per_sample import WEIGHS, cross_entropy, problem
from torch import nn

from gossamer.kernels.finite import NotFiniteError
from gossamer.kernels.oracle import Vmap, per_sample_gradients
from gossamer.kernels.stack import ParameterStack


@pytest.mark.parametrize("case", ["mlp", "conv", "embedding", "residual"])
def test_every_record_by_itself(case: str) -> None:
    module, points, x, y = problem(case, 2, 3, 1)
    found = per_sample_gradients(module, cross_entropy, points, x, y)
    stack = ParameterStack(module)
    for node in range(2):
        stack.load(module, points[node])
        for record in range(3):
            loss = cross_entropy(module(x[node, record][None]), y[node, record][None]).sum()
            alone = torch.autograd.grad(loss, list(module.parameters()))
            flat = torch.cat([part.flatten() for part in alone])
            torch.testing.assert_close(found[node, record], flat, rtol=1e-4, atol=1e-6)


def test_a_softmax_in_closed_form() -> None:
    """(p − e_y) ⊗ x for the weights, p − e_y for the bias."""
    module, points, x, y = problem("linear", 3, 4, 2)
    found = per_sample_gradients(module, cross_entropy, points, x, y)
    weight, bias = points[:, :18].view(3, 3, 6), points[:, 18:]
    outputs = torch.einsum("mci,mbi->mbc", weight, x) + bias[:, None]
    excess = outputs.softmax(2) - nn.functional.one_hot(y, 3)
    expected = torch.cat([torch.einsum("mbc,mbi->mbci", excess, x).flatten(2), excess], 2)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_empty_lots_have_no_gradients() -> None:
    module, points, x, y = problem("linear", 3, 0, 2)
    assert per_sample_gradients(module, cross_entropy, points, x, y).shape == (3, 0, points.shape[1])


def test_sums_are_put_or_added_and_infinite_norms_raised_before() -> None:
    module, points, x, y = problem("linear", 2, 3, 3)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    kernel, target = Vmap(module, cross_entropy), torch.full_like(points, 7.0)
    norms = kernel.weighted(points, x, y, mask, WEIGHS["none"], target=target, add=False)
    once = target.clone()
    kernel.weighted(points, x, y, mask, WEIGHS["none"], target=target, add=True)
    torch.testing.assert_close(target, 2 * once)
    assert norms[0, 1] == 0
    x[1, 0] = 3e38
    with pytest.raises(NotFiniteError) as caught:
        kernel.weighted(points, x, y, mask, WEIGHS["none"], target=target, add=False)
    assert caught.value.records.nonzero().tolist() == [[1, 0]]
    torch.testing.assert_close(target, 2 * once)  # nothing was written
