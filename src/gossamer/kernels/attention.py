"""torch's MultiheadAttention with its packed projections as layers of their own."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    """The same arguments and results; where queries, keys and values come from is for subclasses."""

    in_proj_bias = None  # so that torch's encoder layer calls this forward and reads no packed weights
    _qkv_same_embed_dim = False
    out_proj: nn.Module

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.batch_first = layer.embed_dim, layer.num_heads, layer.batch_first
        self.dropout = nn.Dropout(layer.dropout)

    @abstractmethod
    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """(records, L, width) of each."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # a hint: the mask says it
    ) -> tuple[Tensor, Tensor | None]:
        given = query, key, value
        if not self.batch_first:
            turned = {id(x): x.transpose(0, 1) for x in given}
            query, key, value = (turned[id(x)] for x in given)
        q, k, v = map(self._heads, self.project(query, key, value))
        drops = self.training and self.dropout.p > 0
        masks = [attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None, :]]
        if attn_mask is not None and attn_mask.ndim == 3:  # (records · heads, L, S)
            masks[0] = attn_mask.unflatten(0, (-1, self.num_heads))  # type: ignore[no-untyped-call]
        added = [_added(mask) for mask in masks if mask is not None]
        if not (need_weights or drops):  # what may read nothing is 0, as torch's layer has it
            mask = added[-1] + added[0] if len(added) == 2 else next(iter(added), None)
            out = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
            out = self.out_proj(out)
            return out if self.batch_first else out.transpose(0, 1), None
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.embed_dim / self.num_heads)
        for mask in added:
            scores = scores + mask
        weights = self.dropout(scores.softmax(3))
        out = self.out_proj(torch.matmul(weights, v).transpose(1, 2).flatten(2))
        if not self.batch_first:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        return out, weights.mean(1) if average_attn_weights else weights

    def _heads(self, x: Tensor) -> Tensor:
        """(records, L, heads · width) → (records, heads, L, width)."""
        split: Tensor = x.unflatten(2, (self.num_heads, -1))  # type: ignore[no-untyped-call]
        return split.transpose(1, 2)


def _added(mask: Tensor) -> Tensor:
    """True: may not be read; numbers are added."""
    return torch.where(mask, -torch.inf, 0.0) if mask.dtype == torch.bool else mask


class Packed(Attention):
    """With one layer for the three projections; parameters are those of torch's layer."""

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__(layer)
        self.in_proj = with_values(layer.in_proj_weight, layer.in_proj_bias)
        self.out_proj = with_values(layer.out_proj.weight, layer.out_proj.bias)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if query is key is value:
            return tuple(self.in_proj(query).chunk(3, 2))
        return tuple(self.in_proj(x).chunk(3, 2)[k] for k, x in enumerate((query, key, value)))


def with_values(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer of these parameters, not of copies."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
    return layer


def unpacked(module: nn.Module) -> dict[str, str]:
    """Put layers that can be book-kept in the place of attention, in the module itself; old and new names."""
    renamed = dict[str, str]()
    for name, layer in [*module.named_modules(remove_duplicate=False)]:
        if type(layer) is not nn.MultiheadAttention or "forward" in vars(layer) or not name:
            continue
        hooks = (
            layer._forward_hooks,
            layer._forward_pre_hooks,
            layer._backward_hooks,
            layer._backward_pre_hooks,
        )
        if any(hooks) or not layer._qkv_same_embed_dim or layer.bias_k is not None or layer.add_zero_attn:
            continue
        module.set_submodule(name, Packed(layer).train(layer.training))
        renamed |= {f"{name}.in_proj_{own}": f"{name}.in_proj.{own}" for own in ("weight", "bias")}
    return renamed
