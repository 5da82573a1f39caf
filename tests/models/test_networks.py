"""The networks: shapes, sizes, initial values and a user's own module."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.networks import KINDS, count, make
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from gossamer.models.layers import check_no_mixing
from gossamer.models.networks import build, image_shape, load_module, models
from gossamer.options.registry import options_of

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
            "model.kind resnet50 shallow-cnn",
        ),
        (
            "softmax",
            (4,),
            {"hidden": [3]},
            "model.hidden kind softmax bias",
        ),
        ("mlp", (4,), {"hidden": 128}, "model.hidden 128"),
        ("mlp", (4,), {"hidden": [0]}, "model.hidden[0] 0 1"),
        ("mlp", (4,), {"activation": "gelu"}, "model.activation gelu relu tanh"),
        ("shallow-cnn", (1, 28, 28), {"filters": [8]}, "model.filters [8] 2"),
        ("linear", (4,), {"bias": False}, "model.bias kind linear"),
        ("softmax", (4,), {"bias": 1}, "model.bias 1"),
        ("mnist-cnn", (1, 28, 28), {"filters": 0}, "model.filters 0 1"),
        ("resnet9", (3, 32, 32), {"groups": 0}, "model.groups 0 1"),
        ("shallow-cnn", (54,), {}, "model.kind shallow-cnn shape 54"),
        ("resnet9", (3, 4, 4), {}, "model.kind resnet9 8"),
        ("mnist-cnn", (1, 5, 5), {}, "model.kind mnist-cnn 6"),
    ],
)
def test_mistakes(kind: str, shape: tuple[int, ...], options: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        build(kind, input_shape=shape, outputs=10, **options)


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
    assert {tuple(place) for place in moved.nonzero().tolist()} <= {(r, c) for r in (4, 5, 6) for c in (1, 2, 3)}
    assert bool(moved[5, 2])


def test_the_shape_of_an_image_is_handed_back() -> None:
    assert image_shape("x", (3, 32, 30), smallest=30) == (3, 32, 30)


@pytest.mark.parametrize("shape", [(54,), (8, 8), (1, 8, 7), (1, 7, 8), (1, 1, 8, 8)])
def test_anything_else_is_refused_with_what_it_is_and_what_would_do(shape: tuple[int, ...]) -> None:
    with expect_refusal("model.kind", "shallow-cnn", ["8 × 8", shape, "softmax", "mlp"], remedy=True):
        image_shape("shallow-cnn", shape, smallest=8)


def test_sizes_by_hand_linear() -> None:
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


def test_a_lookup_has_orthogonal_gradients() -> None:
    table = build("lookup", input_shape=(), outputs=1, rows=5)
    places = torch.tensor([3, 0])
    assert torch.equal(table(places)[:, 0], table.weight[places, 0])
    gradients = [torch.autograd.grad(table(places)[i].sum(), table.weight)[0][:, 0] for i in range(2)]
    assert torch.equal(torch.stack(gradients), torch.eye(5)[places])
    for shape, rows, named in (((1, 8, 8), 5, "model.kind lookup dirac"), ((), 1, "model.rows 1")):
        with expect_refusal(names=named):
            build("lookup", input_shape=shape, outputs=1, rows=rows)


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


def test_every_option_has_a_meaning() -> None:
    for kind in models.kinds.values():
        assert kind.__doc__
        assert all(option.meaning for option in options_of(kind)), kind


def test_a_table_is_read_into_its_kind_and_written_back() -> None:
    kind = models.parse({"kind": "mlp", "hidden": [3]})
    assert (kind.kind, kind.hidden, kind.activation) == ("mlp", [3], "relu")
    assert models.parse({"kind": "mlp", "hidden": [3], "activation": "relu"}) == kind
    assert set(models) == {
        "softmax", "linear", "one-vs-all", "mlp", "shallow-cnn", "mnist-cnn", "resnet9", "resnet18", "lookup", "minilm", "own"
    }  # fmt: skip


FILE = """
from torch import nn
from beside import WIDTH

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 2))

def make():
    return nn.Linear(WIDTH, 3)

def needs(width):
    return nn.Linear(width, 3)

def wrong():
    return "no module"

def stops():
    raise ValueError("two\\nlines")

net, number = Net(), 3
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("WIDTH = 4")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "quits.py").write_text("raise SystemExit('not today')")
    (tmp_path / "notes.txt").write_text("net = None")
    return str(tmp_path / "net.py")


def test_it_stands_in_the_table_without_options_and_says_where_the_module_comes_from() -> None:
    assert "own" in models.kinds
    with expect_refusal(key="model.kind", value="own", names="gossamer.run"):
        build("own", input_shape=(4,), outputs=2)
    with expect_refusal(key="model.hidden", names="own"):
        build("own", input_shape=(4,), outputs=2, hidden=3)


@pytest.mark.parametrize("name", ["Net", "make", "net"])
def test_a_module_comes_as_an_instance_a_class_or_a_function(net: str, name: str) -> None:
    before = list(sys.path)
    made = load_module(f"{net}:{name}")
    assert isinstance(made, nn.Module)
    assert made(torch.zeros(1, 4)).shape in ((1, 2), (1, 3))
    assert sys.path == before


def test_its_weights_follow_the_seed_and_leave_others_alone(net: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        return next(load_module(f"{net}:make", seed=seed).parameters())

    state = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("net.py", "net.py FILE NAME"),
        ("net.py:", "FILE NAME"),
        ("nowhere.py:Net", "nowhere.py"),
        ("net.py:Nut", "Nut make needs"),
        ("net.py:number", "torch.nn.Module"),
        ("net.py:wrong", "str"),
        ("net.py:needs", "TypeError"),
        ("net.py:stops", "ValueError"),
        ("broken.py:Net", "ModuleNotFoundError nothing_of_this_name"),
        ("quits.py:Net", "SystemExit"),
        ("notes.txt:net", ".py"),
    ],
)
def test_whatever_goes_wrong_in_the_file_is_one_sentence(net: str, asked: str, message: str) -> None:
    with expect_refusal(key="--module", names=message) as told:
        load_module(str(Path(net).parent / asked))
    assert len(str(told.value).splitlines()) == 1


def test_the_message_names_the_key_it_came_by(net: str) -> None:
    with expect_refusal(key="model", value="nowhere:x"):
        load_module("nowhere:x", key="model =")
