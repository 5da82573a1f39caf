"""LoRA: the first model is the given one, merging gives plain layers of the same function, and what is refused."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import Tensor, nn

import gossamer
from gossamer.kernels.bookkeeping import BookKeeping, rules_of
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack


class Block(nn.Module):
    """Tokens, attention written by hand, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8, padding_idx=0)
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        scores = torch.matmul(self.q(x), self.k(x).transpose(1, 2)) / math.sqrt(8)
        x = self.norm(x + torch.matmul(scores.softmax(2), self.v(x)))
        out: Tensor = self.head(x.mean(1))
        return out


class Packed(nn.Module):
    """The same with torch's attention and its packed weights."""

    def __init__(self, *, batch_first: bool = True, bias: bool = True, keys: int | None = None) -> None:
        super().__init__()
        self.embed, self.attention = (
            nn.Embedding(12, 8),
            nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first, kdim=keys, vdim=keys),
        )
        self.keys = nn.Linear(8, keys or 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x)
        keys = self.keys(tokens)
        if not self.attention.batch_first:
            tokens, keys = tokens.transpose(0, 1), keys.transpose(0, 1)
        out = self.attention(tokens, keys, keys, key_padding_mask=x == 0)[0]
        judged: Tensor = self.head(out.mean(1 if self.attention.batch_first else 0))
        return judged


def seeded(module: type[nn.Module], **options: object) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        made: nn.Module = module(**options).eval()
        return made


TOKENS = torch.tensor([[3, 1, 0, 0, 0], [4, 4, 11, 2, 7], [2, 0, 0, 0, 0], [9, 8, 7, 6, 0]])


def moved(module: nn.Module) -> nn.Module:
    """With other values of what is trained."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


@pytest.mark.parametrize(
    ("net", "targets", "trained"),
    [
        (seeded(Block), ["q", "v"], 4 * 16),
        (seeded(Block), ["embed", "head"], 2 * (12 + 8) + 2 * (8 + 3)),
        (seeded(Block), None, 3 * 2 * 16 + 2 * 11),
        (seeded(Packed), ["q_proj", "v_proj"], 4 * 16),
        (seeded(Packed), ["attention"], 4 * 2 * 16),
        (seeded(Packed, batch_first=False), ["attention"], 4 * 2 * 16),
        (seeded(Packed, bias=False, keys=6), ["attention.k_proj", "out_proj"], 2 * (6 + 8) + 2 * 16),
        (nn.Linear(5, 3), None, 16),
    ],
)
def test_the_first_model_is_the_given_one_and_merging_gives_its_layers(
    net: nn.Module, targets: list[str] | None, trained: int
) -> None:
    x = torch.randn(4, 5) if isinstance(net, nn.Linear) else TOKENS
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tuned = gossamer.lora(net, rank=2, alpha=3, targets=targets)
    assert ParameterStack(tuned).dim == trained
    torch.testing.assert_close(tuned(x), net(x))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    outputs = moved(tuned)(x)
    assert not torch.allclose(outputs, net(x), atol=1e-2)
    whole = gossamer.merge_lora(tuned)
    assert whole.state_dict().keys() == before.keys()
    assert [type(layer) for layer in whole.modules()] == [type(layer) for layer in net.modules()]
    torch.testing.assert_close(whole(x), outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [True, False])
def test_torchs_encoder_computes_with_its_adapters_in_evaluation_too(first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=first)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=first)
    x, padded = torch.randn(4, 5, 8), TOKENS == 0
    x = x if first else x.transpose(0, 1)
    tuned = moved(gossamer.lora(net, rank=2))
    with torch.no_grad():
        trained, judged = (tuned.train(mode)(x, src_key_padding_mask=padded) for mode in (True, False))
        whole = gossamer.merge_lora(tuned).train()(x, src_key_padding_mask=padded)
    there = ~padded if first else ~padded.T
    torch.testing.assert_close(judged[there], trained[there], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole[there], trained[there], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("targets", [["q", "v"], ["embed", "q", "head"], None])
def test_adapters_are_book_kept(targets: list[str] | None) -> None:
    tuned = moved(gossamer.lora(seeded(Block), rank=2, targets=targets))
    check_sums(tuned, TOKENS.view(2, 2, 5))


def test_attention_of_torch_is_book_kept_once_it_is_adapted() -> None:
    check_sums(moved(gossamer.lora(seeded(Packed), rank=2, targets=["attention"])), TOKENS.view(2, 2, 5))


def check_sums(module: nn.Module, x: Tensor) -> None:
    loss, y = nn.CrossEntropyLoss(reduction="none"), torch.tensor([[0, 1], [2, 0]])
    points, mask = ParameterStack(module).flatten(module).repeat(2, 1), torch.ones(2, 2, dtype=torch.bool)
    kernel = ClippedSum(module, loss, method="book-keeping")
    sums, _ = kernel(points, x, y, mask, torch.ones_like)
    assert isinstance(kernel.method, BookKeeping)
    trained = [p for p in module.parameters() if p.requires_grad]
    for i in range(2):
        plain = torch.autograd.grad(loss(module(x[i]), y[i]).sum(), trained)
        torch.testing.assert_close(sums[i], torch.cat([g.flatten() for g in plain]), rtol=1e-3, atol=1e-4)


def test_a_place_outside_of_a_frozen_table_leaves_its_record_out(caplog: pytest.LogCaptureFixture) -> None:
    module, loss = (
        gossamer.lora(seeded(Block), rank=2, targets=["q", "v"]),
        nn.CrossEntropyLoss(reduction="none"),
    )
    moved(module)
    x, y = TOKENS.view(2, 2, 5).clone(), torch.tensor([[0, 1], [2, 0]])
    points, mask = ParameterStack(module).flatten(module).repeat(2, 1), torch.ones(2, 2, dtype=torch.bool)
    rest = mask.clone()
    rest[0, 1] = False
    due, _ = ClippedSum(module, loss)(points, x, y, rest, torch.ones_like)
    for place in (12, -1, 2**40):
        x[0, 1, 3] = place
        for method in ("book-keeping", "vmap"):
            sums, norms = ClippedSum(module, loss, method=method)(points, x, y, mask, torch.ones_like)
            assert norms[0, 1] == 0
            torch.testing.assert_close(sums, due, rtol=1e-3, atol=1e-5)


def test_frozen_layers_need_no_rule() -> None:
    net = nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.Flatten(), nn.Linear(18, 3))
    net[0].requires_grad_(False)
    assert list(rules_of(net)) == ["2"]


def test_one_layer_in_two_places_has_one_adapter() -> None:
    layer = nn.Linear(4, 4)
    tuned = gossamer.lora(nn.Sequential(layer, nn.ReLU(), layer), rank=2)
    assert tuned[0] is tuned[2]
    assert ParameterStack(tuned).dim == 16


def test_adapters_begin_the_same_everywhere() -> None:
    one, other = (gossamer.lora(seeded(Block), rank=2) for _ in range(2))
    stack = ParameterStack(one)
    assert torch.equal(stack.flatten(one), stack.flatten(other))
    assert not torch.equal(stack.flatten(one), stack.flatten(gossamer.lora(seeded(Block), rank=2, seed=1)))


@pytest.mark.parametrize(
    ("net", "options", "key"),
    [
        (seeded(Block), {"targets": ["norm"]}, "lora.targets"),
        (seeded(Block), {"targets": ["query"]}, "lora.targets"),
        (seeded(Block), {"train": ["classifier"]}, "lora.train"),
        (seeded(Block), {"targets": ["head"], "rank": 4}, "lora.rank"),
        (seeded(Block), {"rank": 0}, "lora.rank"),
        (seeded(Block), {"targets": "q"}, "lora.targets"),
        (nn.Conv2d(1, 1, 1), {}, "lora.targets"),
        (nn.MultiheadAttention(4, 2, add_zero_attn=True), {}, "attention add_zero_attn"),
        (gossamer.lora(seeded(Block), rank=2, targets=["q"]), {"rank": 2}, "layer q merge_lora"),
        (Block, {}, "module"),
    ],
)
def test_what_cannot_have_an_adapter_is_named(net: nn.Module, options: dict[str, object], key: str) -> None:
    with expect_refusal(names=key):
        gossamer.lora(net, **options)  # type: ignore[arg-type]


class Reads(nn.Module):
    """A module that reads a layer's weight instead of calling it, and calls another."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.body, self.head, self.detached = nn.Linear(64, 8), nn.Linear(8, 10), detached

    def forward(self, x: Tensor) -> Tensor:
        weight = self.body.weight.detach() if self.detached else self.body.weight
        out: Tensor = self.head(torch.tanh(x.flatten(1) @ weight.T))
        return out


def test_an_adapter_that_the_outputs_do_not_depend_on_is_refused_by_name() -> None:
    changes = {"nodes": 2, "rounds": 2, "lora.rank": 2}
    with expect_refusal(key="adapter", names="body.lora_"):
        gossamer.plan("quickstart", changes, module=Reads(detached=True))
    plan = gossamer.plan("quickstart", changes, module=Reads(detached=False))  # what it reads is the sum
    assert plan.stack.dim == 2 * (64 + 8) + 2 * (8 + 10)


def test_an_adapter_that_did_not_move_is_reported_by_name(caplog: pytest.LogCaptureFixture) -> None:
    """B starts at 0, so A has no gradient in the first step: one round without noise leaves it where it was."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    changes = {"nodes": 2, "rounds": 1, "baseline": "non-private", "lora.rank": 2, "lora.targets": ["1"]}
    with caplog.at_level(logging.WARNING, "gossamer"):
        gossamer.run("quickstart", changes, module=net)
    assert "1.lora_A.weight" in caplog.text
    assert "1.lora_B.weight" not in caplog.text
    caplog.clear()
    gossamer.run("quickstart", {**changes, "rounds": 3}, module=net)
    assert "lora_" not in caplog.text


def test_frozen_layers_in_bfloat16_and_all_that_is_summed_in_float32() -> None:
    net = seeded(Block)
    exact, half = (gossamer.lora(net, targets=["q", "v"], storage=kind) for kind in ("float32", "bfloat16"))
    kinds = {name: p.dtype for name, p in half.named_parameters()}
    frozen = {name for name, p in half.named_parameters() if not p.requires_grad}
    assert any(kinds[name] == torch.bfloat16 for name in frozen)
    assert {kinds[name] for name in kinds.keys() - frozen} == {torch.float32}
    outputs = half(TOKENS)
    assert outputs.dtype == torch.float32
    assert not torch.equal(outputs, exact(TOKENS))
    torch.testing.assert_close(outputs, exact(TOKENS), rtol=0.02, atol=0.02)
    whole = gossamer.merge_lora(moved(half))
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    torch.testing.assert_close(whole(TOKENS), half(TOKENS), rtol=0.02, atol=0.02)


def test_adapters_on_bfloat16_layers_are_book_kept() -> None:
    check_sums(moved(gossamer.lora(seeded(Block), targets=["q", "v"], storage="bfloat16")), TOKENS.view(2, 2, 5))
