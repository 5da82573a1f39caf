"""MiniLM, an encoder of texts with public weights (Wang et al. 2020), as plain torch, and its frozen features.

BERT's form: embeddings of tokens and places, then layers of attention and two linear maps, each added to what came in
and normalised after it (post-norm). A text's features are the mean over its tokens (Reimers and Gurevych 2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data.features.steps import Shape, Step, StepKind, steps
from gossamer.data.origins import WEIGHTS
from gossamer.errors import UserError

NAME = "minilm-l6"
FEATURES = 384
HEAD_WIDTH = 32  # of attention, in every MiniLM
_EPSILON = 1e-12
_HIDDEN = -1e9  # finite: a text without tokens has no NaN
_TOGETHER = 32  # texts of about the same length
_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "first_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "last_norm": "output.LayerNorm",
}


class Layer(nn.Module):
    """Attention between the tokens of a text, then two linear maps for each token."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.first_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.last_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.heads = width // HEAD_WIDTH

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        q, k, v = self._heads(self.query(x)), self._heads(self.key(x)), self._heads(self.value(x))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(HEAD_WIDTH)
        weights = torch.where(kept[:, None, None, :], scores, _HIDDEN).softmax(3)
        x = self.first_norm(x + self.output(torch.matmul(weights, v).transpose(1, 2).flatten(2)))
        out: Tensor = self.last_norm(x + self.down(functional.gelu(self.up(x))))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """(texts, tokens, heads · width) → (texts, heads, tokens, width)."""
        split: Tensor = x.unflatten(2, (self.heads, HEAD_WIDTH))  # type: ignore[no-untyped-call]
        return split.transpose(1, 2)


class MiniLM(nn.Module):
    """Tokens (B, T), 0 where there is none → (B, width): the mean of the last layer over the tokens.

    first: a network of the layers from this one on, which takes states in place of tokens.
    last: a network up to this many layers, which gives states: (B, T, width), 0 where there is no token.
    """

    def __init__(self, weights: Mapping[str, Tensor], length: int, first: int = 0, last: int | None = None) -> None:
        super().__init__()
        self.first, self.last = first, last
        words, places = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
        if length > len(places):
            raise UserError(f"texts of {length} tokens are too long; use at most {len(places)}.")
        count = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
        trunk = first if last is None else last
        if not 0 <= trunk < count:
            raise UserError(f"trunk = {trunk} leaves no layer of the encoder; use 1 to {count - 1}.")
        width, inner = words.shape[1], len(weights["encoder.layer.0.intermediate.dense.bias"])
        with torch.device("meta"):  # no first values: they are given
            if first == 0:
                self.words, self.places = nn.Embedding(*words.shape), nn.Embedding(length, width)
                self.norm = nn.LayerNorm(width, eps=_EPSILON)
            # By its number in the whole encoder, so that a layer's name is the same in a part of it.
            self.layers = nn.ModuleDict({str(k): Layer(width, inner) for k in range(count)[first:last]})
        values = {
            "words.weight": words,
            # Every text is of BERT's first type, whose constant is added at all places.
            "places.weight": places[:length] + weights["embeddings.token_type_embeddings.weight"][0],
        }
        for part in ("weight", "bias"):
            values[f"norm.{part}"] = weights[f"embeddings.LayerNorm.{part}"]
            for k in self.layers:
                for own, name in _NAMES.items():
                    values[f"layers.{k}.{own}.{part}"] = weights[f"encoder.layer.{k}.{name}.{part}"]
        device, names = torch.get_default_device(), self.state_dict()
        self.load_state_dict({name: values[name].to(device, copy=True) for name in names}, assign=True)

    def forward(self, x: Tensor) -> Tensor:
        """Of tokens, or, without the first layers, of states: a token's are never all 0, as they end in a norm."""
        if self.first:
            kept = x.abs().sum(2) > 0
        else:
            kept, place = x > 0.5, (x > -1).long().cumsum(1) - 1
            x = self.norm(self.words(x.long()) + self.places(place))
        for layer in self.layers.values():
            x = layer(x, kept)
        if self.last is not None:
            return torch.where(kept[:, :, None], x, 0)
        shares = kept.to(x.dtype)
        mean: Tensor = (x * shares[:, :, None]).sum(1) / shares.sum(1, keepdim=True).clamp_min(1)
        return mean


def encoder(length: int, data_dir: Path | None = None, *, first: int = 0, last: int | None = None) -> MiniLM:
    """The encoder with public weights, or some of its layers, for texts of up to so many tokens."""
    return MiniLM(WEIGHTS[NAME].tensors(data_dir), length, first, last)


@steps.register("minilm")
@dataclass(frozen=True, kw_only=True)
class TextFeatures(StepKind):
    """Tokens → the 384 features of the frozen encoder MiniLM; with `trunk`, each token's after so many layers."""

    trunk: Annotated[int | None, Field(ge=1)] = None

    weights: ClassVar[str] = NAME
    costly: ClassVar[bool] = True

    def key(self) -> dict[str, Any]:
        return {**super().key(), "sha256": WEIGHTS[NAME].digest}

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        if len(before) != 1:
            raise UserError(f"data.transform: minilm needs tokens; here a record has shape {before}.")

        @cache
        def network() -> MiniLM:  # at first use: features in the cache need no weights
            return encoder(before[0], data_dir, last=self.trunk)

        def apply(block: Tensor) -> Tensor:
            lengths = (block > 0.5).sum(1)
            order = lengths.argsort(stable=True)
            out = torch.zeros(len(block), *shape)
            for rows in torch.split(order, _TOGETHER):
                longest = int(lengths[rows].max())
                own = network()(block[rows, :longest])
                if self.trunk is None:
                    out[rows] = own
                else:
                    out[rows, :longest] = own
            return out

        shape = (FEATURES,) if self.trunk is None else (*before, FEATURES)
        return Step(of=self, shape=shape, apply=apply)
