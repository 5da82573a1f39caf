"""Sizes by hand, shapes, independence of the records, and the engine's way of calling a network."""

from typing import Any

import pytest
import torch
from tests.support.networks import KINDS, make
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from gossamer.errors import UserError
from gossamer.models.layers import check_no_mixing
from gossamer.models.networks import build

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_shape(kind: str, shape: tuple[int, ...]) -> None:
    out = make(kind, shape, outputs=7)(torch.randn(5, *shape))
    assert out.shape == (5, 1 if kind == "linear" else 7)
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("kind", KINDS)
def test_records_do_not_mix(kind: str) -> None:
    """In training mode, a record's output and gradient are the same alone and in any company."""
    network = make(kind, (1, 8, 8)).train().double()
    check_no_mixing(network)
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    alone = network(x[2:3])
    torch.testing.assert_close(network(x)[2:3], alone, rtol=1e-9, atol=1e-9)
    loud = x.clone()
    loud[[0, 1, 3, 4, 5]] *= 100
    torch.testing.assert_close(network(loud)[2:3], alone, rtol=1e-9, atol=1e-9)
    parameters = list(network.parameters())
    single = torch.autograd.grad(network(x[2:3]).square().sum(), parameters)
    together = torch.autograd.grad(network(loud)[2].square().sum(), parameters)
    for a, b in zip(single, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    assert not list(network.buffers())  # nothing is remembered between calls


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind: str) -> None:
    network = make(kind, (1, 8, 8))
    out = network(torch.randn(16, 1, 8, 8))
    (out.sum() if kind == "linear" else functional.cross_entropy(out, torch.arange(16) % 10)).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_nodes(kind: str) -> None:
    """Stacked parameters of three nodes, each on its own lot, as one call; and per-record gradients."""
    nodes = [make(kind, (1, 8, 8), seed=s) for s in range(3)]
    parameters, buffers = stack_module_state(nodes)

    def forward(p: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(nodes[0], p, (x,))

    assert buffers == {}
    x = torch.randn(3, 4, 1, 8, 8)
    out = vmap(forward)(parameters, x)
    for node, lot, got in zip(nodes, x, out, strict=True):
        torch.testing.assert_close(got, node(lot), rtol=1e-4, atol=1e-4)

    def loss(p: dict[str, Tensor], record: Tensor) -> Tensor:
        result: Tensor = functional_call(nodes[0], p, (record[None],)).square().sum()
        return result

    own = {name: p.detach() for name, p in nodes[0].named_parameters()}
    per_record = vmap(torch.func.grad(loss), in_dims=(None, 0))(own, x[0])
    total = torch.autograd.grad(nodes[0](x[0]).square().sum(), list(nodes[0].parameters()))
    for (name, each), whole in zip(per_record.items(), total, strict=True):
        torch.testing.assert_close(each.sum(0), whole, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize(
    ("kind", "shape", "options", "says"),
    [
        (
            "resnet50",
            (3, 32, 32),
            {},
            "model.kind = 'resnet50' is not known; it can be .*shallow-cnn",
        ),
        (
            "softmax",
            (4,),
            {"hidden": [3]},
            "model.hidden is not a key of kind 'softmax'; the keys here are bias",
        ),
        ("mlp", (4,), {"hidden": 128}, "model.hidden = 128 must be a list"),
        ("mlp", (4,), {"hidden": [0]}, r"model.hidden\[0\] = 0 must be at least 1"),
        ("mlp", (4,), {"activation": "gelu"}, "model.activation = 'gelu' must be 'relu' or 'tanh'"),
        ("shallow-cnn", (1, 28, 28), {"filters": [8]}, "model.filters = .* must have at least 2 entries"),
        ("linear", (4,), {"bias": False}, "model.bias is not a key of kind 'linear'; there are none here"),
        ("softmax", (4,), {"bias": 1}, "model.bias = 1 must be true or false"),
        ("mnist-cnn", (1, 28, 28), {"filters": 0}, "model.filters = 0 must be at least 1"),
        ("resnet9", (3, 32, 32), {"groups": 0}, "model.groups = 0 must be at least 1"),
        ("shallow-cnn", (54,), {}, r"'shallow-cnn' needs images .* shape \(54,\)"),
        ("resnet9", (3, 4, 4), {}, "at least 8 × 8"),
        ("mnist-cnn", (1, 5, 5), {}, "at least 6 × 6"),
    ],
)
def test_mistakes(kind: str, shape: tuple[int, ...], options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build(kind, input_shape=shape, outputs=10, **options)
