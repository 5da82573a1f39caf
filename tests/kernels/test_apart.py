"""Which modules are book-kept: decided on graphs, with a reason for each that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.mixing import FEATURES, MIXING, Base, Standardised
from tests.support.networks import KINDS, make
from tests.support.per_sample import CASES, cross_entropy, problem
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.apart import graph_of
from gossamer.kernels.layers import RULES
from gossamer.kernels.operations import LAYERS, MixingError

X, Y = torch.randn(2, FEATURES), torch.zeros(2, dtype=torch.long)


def with_values(graph: nn.Module, module: nn.Module) -> nn.Module:
    """A graph has no parameters of its own to speak of."""
    graph.load_state_dict(
        {f"module.{name}".replace("in_proj_", "in_proj."): value for name, value in module.state_dict().items()},
        strict=False,
    )
    return graph


@pytest.mark.parametrize("case", CASES)
def test_every_module_of_known_layers_is_book_kept_and_computes_the_same(case: str) -> None:
    module, _, x, y = problem(case, 1, 4, 0)
    graph = with_values(graph_of(module, cross_entropy, x[0], y[0]), module)
    torch.testing.assert_close(graph(x[0], y[0]), cross_entropy(module(x[0]), y[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_of_the_papers_is_book_kept(kind: str) -> None:
    module = make(kind, (1, 16, 16))
    graph_of(module, lambda out, y: out.square().sum(1), torch.randn(2, 1, 16, 16), Y)


def test_layers_with_a_rule_are_known() -> None:
    assert set(RULES) <= set(LAYERS)


@pytest.mark.parametrize("module", [m for m in MIXING if m is not Standardised])
def test_a_module_that_mixes_is_not(module: Callable[[], nn.Module]) -> None:
    with pytest.raises(MixingError):
        graph_of(module(), cross_entropy, X, Y)


def test_a_record_that_is_standardised_by_itself_is() -> None:
    graph_of(Standardised(), cross_entropy, X, Y)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda m, x: m.head(x - x.mean(0)), "mean"),
        (lambda m, x: m.head(x - x.sum()), "sum"),
        (lambda m, x: m.head(x.softmax(0)), "softmax"),
        (lambda m, x: m.head(x.softmax(-2)), "softmax"),
        (lambda m, x: m.head(F.softmax(x)), "softmax"),
        (lambda m, x: m.head(F.normalize(x, dim=0)), "normalize"),
        (lambda m, x: m.head(x * x.shape[0]), "number of records"),
        (lambda m, x: m.head(x.flip(0)), "flip"),
        (lambda m, x: m.head(x.t().reshape(-1, FEATURES)), "the operation t "),
        (lambda m, x: m.head(x.transpose(0, 1).reshape(-1, FEATURES)), "transpose"),
        (lambda m, x: m.head(x[torch.tensor([0, 0])]), "getitem"),
        (lambda m, x: m.head(x + x[:1]), "getitem"),
        (lambda m, x: m.head(x - x[:, 0][None]), "getitem|sub"),
        (lambda m, x: m.head(x[:, :1] + x[:, 0]), "add"),
        (lambda m, x: m.head(torch.cat([x, x])), "cat"),
        (lambda m, x: m.head(x @ x.T), "getattr|T"),
        (lambda m, x: m.head(F.layer_norm(x, (1, FEATURES))), "layer_norm"),
        (lambda m, x: m.head(x.mul_(2)), "in place"),
        (lambda m, x: m.head(x.cumsum(0)), "cumsum"),
        (lambda m, x: m.head(x).view(FEATURES, -1), "view|reshape|loss"),
        (lambda m, x: m.head(x) * m.head.weight.sum(), "outside of a layer"),
        (lambda m, x: torch.matmul(x, other=m.head.weight.T), "."),
        (lambda m, x: m.head(x * torch.rand(1)), "not the same"),
        (lambda m, x: m.head(x + len(x)), "number of records"),
        (lambda m, x: m.head(x / len(x)), "number of records"),
        (lambda m, x: m.head(sum(row.sum() for row in x) + x), "."),
        (lambda m, x: m.head(x.repeat(len(x), 1)[:, :1].expand(x.shape)), "number of records"),
        (lambda m, x: m.head(x.roll(1)), "roll"),
        (lambda m, x: m.head(x.flip((0, 1))), "flip"),
        (lambda m, x: m.head(x[None].expand(len(x), -1, -1).mean(1)), "getitem|expand"),
        (lambda m, x: m.head(F.scaled_dot_product_attention(x, x, x)), "attention"),
        (lambda m, x: m.head(F.scaled_dot_product_attention(*[x[:, None]] * 3, dropout_p=0.1)[:, 0]), "attention"),
        (lambda m, x: m.head(x + torch.zeros(len(x), 1)), "not the same"),
        (lambda m, x: m.head(x.unsqueeze(0)).squeeze(), "unsqueeze"),
    ],
)  # fmt: skip
def test_what_is_refused_and_by_which_name(forward: Callable[[Base, Tensor], Tensor], words: str) -> None:
    class Module(Base):
        def forward(self, x: Tensor) -> Tensor:
            return forward(self, x)

    with pytest.raises(MixingError, match=words):
        graph_of(Module(), cross_entropy, X, Y)


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.head(x.view(x.size(0), -1)),
        lambda m, x: m.head(x.reshape(x.shape[0], x.shape[1])),
        lambda m, x: m.head(x.view(-1, FEATURES)),
        lambda m, x: m.head(torch.cat([x[:, :2], x[:, 2:]], 1)),
        lambda m, x: m.head(torch.stack([x, x], dim=2).amax(2)),
        lambda m, x: m.head(x.max(1, keepdim=True).values - x),
        lambda m, x: m.head(sum(x.chunk(2, dim=1)).repeat_interleave(1, 1) if False else x),
        lambda m, x: m.head(F.dropout(F.relu(x, inplace=True), 0.1, m.training)),
        lambda m, x: m.head((x[:, :, None] @ x[:, None, :]).sum(2)),
        lambda m, x: m.head(x - torch.arange(6.0)),
        lambda m, x: m.head(torch.where(x > 1, x / 255, x)),
        lambda m, x: m.head(x.view(len(x), -1) + x.new_ones(1, FEATURES)),
        lambda m, x: m.head(x.view(len(x), x.shape[1] // 2, 2).transpose(1, 2).reshape(*x.shape[:-1], -1)),
        lambda m, x: m.head(x[:, :1].expand(len(x), FEATURES) + x.roll(1, 1).flip(1)),
        lambda m, x: m.head(x.masked_fill(x > 1, 0.0).repeat(1, 2)[:, :FEATURES]),
        lambda m, x: m.head(F.scaled_dot_product_attention(*x.unsqueeze(2).chunk(3, 1)).repeat(1, 3, 1).squeeze(2)),
        lambda m, x: m.head(F.rms_norm(x, (FEATURES,)) if x.ndim == 2 and x.is_floating_point() else x),
    ],
)
def test_what_is_written_by_hand_and_keeps_records_apart(forward: Callable[[Base, Tensor], Tensor]) -> None:
    class Module(Base):
        def forward(self, x: Tensor) -> Tensor:
            return forward(self, x)

    module = Module().eval()
    graph = with_values(graph_of(module, cross_entropy, X, Y), module)
    torch.testing.assert_close(graph(X.clone(), Y), cross_entropy(module(X.clone()), Y))


def test_hooks_and_layers_with_another_forward_are_looked_into() -> None:
    hooked = nn.Sequential(nn.Linear(FEATURES, 3))
    hooked[0].register_forward_hook(lambda m, args, out: out - out.mean(0))
    replaced = nn.Sequential(nn.Tanh(), nn.Linear(FEATURES, 3))
    replaced[0].forward = lambda x: x - x.mean(0)  # type: ignore[method-assign]
    for module in (hooked, replaced):
        with pytest.raises(MixingError):
            graph_of(module, cross_entropy, X, Y)


def test_a_hook_on_all_modules_is_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: None)
    try:
        with pytest.raises(MixingError, match="hook"):
            graph_of(nn.Linear(FEATURES, 3), cross_entropy, X, Y)
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        lambda out, y: F.cross_entropy(out, y, reduction="none") / len(out),
        lambda out, y: (out - out.mean(0)).square().sum(1),
        lambda out, y: F.cross_entropy(out, y, reduction="none").cumsum(0),
        lambda out, y: out,
    ],
)
def test_a_loss_that_mixes_is_refused_like_a_module(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(MixingError):
        graph_of(nn.Linear(FEATURES, 3), loss, X, Y)


def test_nothing_of_the_module_is_written() -> None:
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, 3))
    x = X.clone()
    graph_of(module, cross_entropy, x, Y)(x, Y)
    assert torch.equal(x, X)
    assert module[0].inplace


class _Sees(Tensor):
    """A tensor whose own Python would run on every lot."""

    def __deepcopy__(self, memo: object) -> Tensor:
        return torch.zeros(6).as_subclass(_Sees)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.head(x * (1 + x[:, 5 : x.shape[0]].sum(1, keepdim=True))),
        lambda m, x: m.head(x * F.adaptive_avg_pool1d(x[:, None], x.shape[1::-1][1:]).amax(2)),
        lambda m, x: m.head(x * F.adaptive_avg_pool2d(x[:, :, None], x[:, :1].shape[1::-1]).amax((1, 2))[:, None]),
        lambda m, x: m.head(x + m.seen),
    ],
)
def test_neither_the_lots_size_nor_a_tensors_own_python_gets_into_the_graph(forward: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)
            self.register_buffer("seen", torch.zeros(6).as_subclass(_Sees))

        def forward(self, x: Tensor) -> Tensor:
            return forward(self, x)

    with pytest.raises(MixingError):
        graph_of(Net(), cross_entropy, torch.zeros(1, 6), torch.zeros(1, dtype=torch.long))
