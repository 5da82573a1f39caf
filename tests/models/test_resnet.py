"""The residual networks against second forwards that are written out."""

import torch
from tests.support.networks import count, make
from torch import Tensor, nn
from torch.nn import functional


def test_sizes_of_the_residual_networks() -> None:
    # The usual CIFAR ResNet-18 has 11,173,962 parameters; GroupNorm has as many as BatchNorm.
    assert count("resnet18", (3, 32, 32)) == 11_173_962
    pairs = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    assert count("resnet9", (3, 32, 32), 100) == sum(9 * a * b + 2 * b for a, b in pairs) + 512 * 100 + 100
    # The usual ResNet-9 has 6,575,370, of which 2,240 are convolution biases that the norm makes idle.
    assert count("resnet9", (3, 32, 32)) == 6_575_370 - 2_240


class Tape:
    """Plays a network's parameters back in order through plain functions: a second, independent forward."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = iter(network.parameters())

    def conv(self, x: Tensor, stride: int = 1) -> Tensor:
        kernel, scale, shift = (next(self.parameters) for _ in range(3))
        x = functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return functional.group_norm(x, min(16, len(scale)), scale, shift)

    def linear(self, x: Tensor) -> Tensor:
        return functional.linear(x, next(self.parameters), next(self.parameters))


def test_resnet18_is_the_textbook_network() -> None:
    network = make("resnet18", (3, 32, 32))
    x = images = torch.randn(2, 3, 32, 32)
    tape = Tape(network)
    x = tape.conv(x).relu()
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            out = tape.conv(tape.conv(x, stride).relu())
            x = (out + (tape.conv(x, stride) if stride == 2 else x)).relu()
    assert x.shape[2:] == (4, 4)
    torch.testing.assert_close(network(images), tape.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1)))


def test_resnet9_is_the_textbook_network() -> None:
    network = make("resnet9", (3, 32, 32))
    x = images = torch.randn(2, 3, 32, 32)
    tape = Tape(network)
    x = tape.conv(x).relu()
    x = functional.max_pool2d(tape.conv(x).relu(), 2)
    x = x + tape.conv(tape.conv(x).relu()).relu()
    x = functional.max_pool2d(tape.conv(x).relu(), 2)
    x = functional.max_pool2d(tape.conv(x).relu(), 2)
    x = x + tape.conv(tape.conv(x).relu()).relu()
    assert x.shape[2:] == (4, 4)
    torch.testing.assert_close(network(images), tape.linear(functional.adaptive_max_pool2d(x, 1).flatten(1)))
