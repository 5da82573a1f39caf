"""The layers of LoRA: a frozen layer with its adapter, and attention written out as projections that can have one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gossamer.errors import UserError, compose
from gossamer.kernels import attention

if TYPE_CHECKING:
    from gossamer.models.lora import LoRA

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class _Around(nn.Module):
    """A module in the place of a layer; what else is read of the layer, such as its sizes, is the layer's."""

    base_layer: nn.Module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_layer"), name)


class Half(_Around):
    """A frozen Linear layer that is kept, and multiplied, in bfloat16; float32 goes in and comes out."""

    base_layer: nn.Linear

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = layer.to(torch.bfloat16)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight.float()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x.to(torch.bfloat16)).float()
        return out

    def merged(self) -> nn.Module:
        """The layer in float32, with its values as they were rounded."""
        return copy.deepcopy(self.base_layer).float()


class Adapted(_Around):
    """base(x) + scale · B(A(x)) for a Linear layer or an Embedding, whose A is a table of `rank` columns."""

    base_layer: nn.Linear | nn.Embedding | Half
    lora_A: nn.Linear | nn.Embedding  # noqa: N815
    lora_B: nn.Linear  # noqa: N815

    def __init__(self, layer: nn.Linear | nn.Embedding, rank: int, scale: float) -> None:
        super().__init__()
        self.base_layer, self.scale = layer, scale
        if isinstance(layer, nn.Embedding):
            self.lora_A = nn.Embedding(layer.num_embeddings, rank, layer.padding_idx)
            self.lora_B = nn.Linear(rank, layer.embedding_dim, bias=False)
            nn.init.zeros_(self.lora_A.weight)
        else:
            self.lora_A = nn.Linear(layer.in_features, rank, bias=False)
            self.lora_B = nn.Linear(rank, layer.out_features, bias=False)
            nn.init.zeros_(self.lora_B.weight)

    @property
    def weight(self) -> Tensor:
        """What a layer without adapter would need to compute the same."""
        a, b = self.lora_A.weight, self.lora_B.weight
        product = a @ b.T if isinstance(self.lora_A, nn.Embedding) else b @ a
        return self.base_layer.weight + self.scale * product

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x) + self.scale * self.lora_B(self.lora_A(x))
        return out

    def merged(self) -> nn.Module:
        """The plain layer that computes the same."""
        base = self.base_layer
        layer = base.merged() if isinstance(base, Half) else copy.deepcopy(base)
        layer.weight = nn.Parameter(self.weight.detach().clone(), requires_grad=False)
        return layer


class Attention(attention.Attention):
    """torch's MultiheadAttention with its packed projections as four layers; the same arguments and results."""

    q_proj: nn.Linear | Adapted | Half
    k_proj: nn.Linear | Adapted | Half
    v_proj: nn.Linear | Adapted | Half
    out_proj: nn.Linear | Adapted | Half

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__(layer)
        if layer.bias_k is not None or layer.add_zero_attn:
            raise UserError("attention with add_bias_kv or add_zero_attn can have no adapter; target others.")
        packed, apart = layer.in_proj_weight, (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        weights = packed.chunk(3) if layer._qkv_same_embed_dim else apart
        biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
        values = zip((*weights, layer.out_proj.weight), (*biases, layer.out_proj.bias), strict=True)
        for name, given in zip(PROJECTIONS, values, strict=True):
            frozen = (None if x is None else nn.Parameter(x.detach().clone(), requires_grad=False) for x in given)
            setattr(self, name, attention.with_values(*frozen))

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    @torch.no_grad()
    def merged(self) -> nn.Module:
        """torch's own layer."""
        packed = self.q_proj, self.k_proj, self.v_proj
        sizes = {"kdim": self.k_proj.in_features, "vdim": self.v_proj.in_features}
        bias, device = self.q_proj.bias is not None, self.q_proj.weight.device
        options = {"bias": bias, "batch_first": self.batch_first, "device": device, **sizes}
        layer = nn.MultiheadAttention(self.embed_dim, self.num_heads, self.dropout.p, **options)
        layer.requires_grad_(False)
        if layer._qkv_same_embed_dim:
            layer.in_proj_weight.copy_(torch.cat([one.weight for one in packed]))
        else:
            for name, one in zip(PROJECTIONS, packed, strict=False):
                layer.get_parameter(f"{name}_weight").copy_(one.weight)
        layer.out_proj.weight.copy_(self.out_proj.weight)
        if bias:
            layer.in_proj_bias.copy_(torch.cat([one.bias for one in packed]))
            layer.out_proj.bias.copy_(self.out_proj.bias)
        return layer.train(self.training)


def merged(module: nn.Module) -> nn.Module:
    """A copy with plain layers in the place of adapted ones."""
    return _replaced(
        module, lambda _, layer: layer.merged() if isinstance(layer, Adapted | Attention | Half) else layer
    )


def _replaced(module: nn.Module, change: Callable[[str, nn.Module], nn.Module]) -> nn.Module:
    """A copy with change(name, layer) in place of every layer, outer ones first; one that is used twice stays one."""
    known: dict[int, tuple[nn.Module, nn.Module]] = {}  # the old ones too, so that no number is given twice

    def visit(name: str, layer: nn.Module) -> nn.Module:
        if id(layer) not in known:
            new = change(name, layer)
            known[id(layer)] = layer, new
            for own, child in [*new._modules.items()]:
                if child is not None and child is not layer:
                    setattr(new, own, visit(f"{name}.{own}".lstrip("."), child))
        return known[id(layer)][1]

    return visit("", copy.deepcopy(module))


def adapted(module: nn.Module, options: LoRA) -> nn.Module:
    """A copy of the module with adapters, frozen but for them and `options.train`."""
    names = dict(module.named_modules())
    attentions = {name for name, layer in names.items() if isinstance(layer, nn.MultiheadAttention)}
    tables = {name for name, layer in names.items() if isinstance(layer, nn.Embedding)}
    layers = {name for name, layer in names.items() if isinstance(layer, nn.Linear)} | {
        f"{name}.{own}".lstrip(".") for name in attentions for own in PROJECTIONS
    }

    def ends(name: str, target: str) -> bool:
        return f".{name}".endswith(f".{target}")

    def fits(name: str, target: str) -> bool:
        above = name.rpartition(".")[0]
        return ends(name, target) or (above in attentions and ends(above, target))

    for key, wanted, there in (
        ("lora.train", options.train, names),
        ("lora.targets", options.targets or [], layers | tables),
    ):
        for target in wanted:
            if not any(fits(name, target) for name in there):
                choice = f"choose from {', '.join([*filter(None, there)][:12])}" if any(there) else None
                raise UserError(compose(key, target, "names no layer that can have it", choice))
    whole = [name for name in names if any(ends(name, target) for target in options.train)]
    chosen = {
        name for name in layers | tables
        if not any(f"{name}.".startswith(f"{one}.") for one in whole)
        and (name in layers if options.targets is None else any(fits(name, target) for target in options.targets))
    }  # fmt: skip
    if not chosen:
        what = f"{type(module).__name__} has no Linear layer and no attention to adapt besides lora.train"
        raise UserError(f"lora.targets {what}; name layers.")

    def change(name: str, layer: nn.Module) -> nn.Module:
        if isinstance(layer, Adapted | Attention):
            raise UserError(f"layer {name!r} has an adapter; use merge_lora, or the module from before.")
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False  # it would read the first layer's weights past its forward
        if name in attentions and any(f"{name}.{own}".lstrip(".") in chosen for own in PROJECTIONS):
            return Attention(layer).train(layer.training)  # type: ignore[arg-type]
        if name not in chosen:
            return layer
        assert isinstance(layer, nn.Linear | nn.Embedding)
        least = min(layer.weight.shape)
        if options.rank > least:
            raise UserError(
                f"lora.rank = {options.rank} is too much for layer {name!r}; use at most {least}, or leave that layer "
                "out of lora.targets."
            )
        scale = (options.alpha or options.rank) / options.rank
        return Adapted(layer, options.rank, scale).to(layer.weight.device)

    module = _replaced(copy.deepcopy(module).requires_grad_(False), change)
    for name in whole:
        module.get_submodule(name).requires_grad_(True)
    return _replaced(module, _halved) if options.storage == "bfloat16" else module


def _halved(_: str, layer: nn.Module) -> nn.Module:
    return Half(layer) if isinstance(layer, nn.Linear) and not layer.weight.requires_grad else layer
