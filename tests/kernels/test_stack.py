import pytest
import torch
from torch import nn

from gossamer.kernels.stack import ParameterStack


def test_views_share_memory_and_follow_named_parameters() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 3, bias=False))
    stack = ParameterStack(model)
    points = torch.stack([stack.flatten(model) * k for k in (1.0, 2.0)])
    views = stack.views(points)
    assert stack.dim == 18 + 2 + 12
    for name, parameter in model.named_parameters():
        assert torch.equal(views[name][1], 2 * parameter)
        assert views[name].untyped_storage().data_ptr() == points.untyped_storage().data_ptr()
    views["1.weight"].zero_()
    assert points[:, 20:].abs().sum() == 0


def test_load_inverts_flatten() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.GroupNorm(1, 3))
    stack = ParameterStack(model)
    point = torch.randn(stack.dim, generator=torch.Generator().manual_seed(0))
    stack.load(model, point)
    assert torch.equal(stack.flatten(model), point)


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="needs"):
        ParameterStack(nn.Linear(2, 2)).views(torch.zeros(3, 5))


def test_layout_on_the_meta_device() -> None:
    stack = ParameterStack(nn.Linear(4, 3, device="meta"))
    assert stack.views(torch.empty(7, 15, device="meta"))["weight"].shape == (7, 3, 4)
