"""Linear models and perceptrons: sizes and starts by hand."""

import pytest
import torch
from tests.support.networks import count, make

from gossamer.models.networks import build


def test_sizes_by_hand() -> None:
    assert count("softmax", (1, 28, 28)) == 784 * 10 + 10
    assert count("softmax", (54,), 7, bias=False) == 54 * 7
    assert count("mlp", (1, 28, 28)) == 784 * 128 + 128 + 128 * 10 + 10
    assert count("mlp", (20,), 3, hidden=[7, 5]) == 20 * 7 + 7 + 7 * 5 + 5 + 5 * 3 + 3


def test_initialisation_follows_the_callers_generator() -> None:
    a, b, c = (make("mlp", (6,), seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


def test_activation_is_used() -> None:
    network = build("mlp", input_shape=(4,), outputs=2, activation="tanh", hidden=[3])
    assert [type(m).__name__ for m in network.children()] == ["Flatten", "Linear", "Tanh", "Linear"]


@pytest.mark.parametrize(("kind", "outputs"), [("linear", 1), ("one-vs-all", 7)])
def test_models_for_convex_losses_start_at_0_without_a_bias(kind: str, outputs: int) -> None:
    network = make(kind, (2, 3), outputs=7)
    (weight,) = network.parameters()
    assert weight.shape == (outputs, 6)
    assert not weight.any()
    with torch.no_grad():
        weight[0] = torch.arange(6.0)
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(network(x)[:, 0], x.flatten(1) @ torch.arange(6.0))
