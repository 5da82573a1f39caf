"""Small convolutional networks: sizes by hand, and the textbook's order of layers."""

import pytest
import torch
from tests.support.networks import count, make
from torch import nn


@pytest.mark.parametrize("kind", ["shallow-cnn", "mnist-cnn"])
def test_pooling_before_relu_is_the_textbook_network(kind: str) -> None:
    network = make(kind, (1, 28, 28))
    assert isinstance(network, nn.Sequential)
    layers = list(network)
    textbook = list(network)
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.MaxPool2d):
            assert isinstance(layers[i + 1], nn.ReLU)
            textbook[i], textbook[i + 1] = layers[i + 1], layer
    x = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(network(x), nn.Sequential(*textbook)(x))


def test_sizes_by_hand() -> None:
    convolutions = lambda c: (c * 8 * 9 + 8) + (8 * 16 * 9 + 16)  # noqa: E731
    for shape, left in (((1, 8, 8), 4), ((1, 28, 28), 49), ((3, 32, 32), 64)):
        dense = 16 * left * 32 + 32 + 32 * 10 + 10
        assert count("shallow-cnn", shape) == convolutions(shape[0]) + dense
    assert count("mnist-cnn", (1, 28, 28)) == (3 * 25 + 3) + (3 * 12 * 12 * 64 + 64) + (64 * 10 + 10)
    assert count("mnist-cnn", (1, 8, 8)) == (3 * 25 + 3) + (3 * 2 * 2 * 64 + 64) + (64 * 10 + 10)


def test_a_pixel_reaches_only_the_windows_around_it() -> None:
    """The first convolution of the shallow network pads: its centre is where the pixel is."""
    network = make("shallow-cnn", (1, 8, 8))
    dark, lit = torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8)
    lit[0, 0, 5, 2] = 1.0
    moved = (network[0](lit) - network[0](dark)).abs().sum((0, 1)) > 0
    assert {tuple(place) for place in moved.nonzero().tolist()} <= {
        (r, c) for r in (4, 5, 6) for c in (1, 2, 3)
    }
    assert bool(moved[5, 2])
