"""LoRA: low-rank adapters next to frozen layers, and their merging into plain layers.

A layer W becomes W + (alpha / rank) B A with W frozen and A, B trained (Hu et al. 2021, arXiv:2106.09685). Names inside
an adapted layer are those of peft: base_layer, lora_A, lora_B. A and B are plain layers of torch, so that their
gradients are computed as any other layer's. One of the two starts at 0, so that the first model is the given one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import nn

from gossamer.models import adapters
from gossamer.models.layers import check_is_module
from gossamer.options.registry import Table
from gossamer.options.sentences import user_error
from gossamer.options.types import Count, Positive

Names = list[Annotated[str, Field(min_length=1)]]


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters on the network, which is frozen but for them."""

    rank: Annotated[Count, "columns of A and B; a layer of (in, out) trains rank × (in + out) numbers"] = 4
    alpha: Annotated[Positive | None, "B A is multiplied by alpha / rank; the rank if not set"] = None
    targets: Annotated[
        Names | None,
        "names of layers, or their last parts: Linear, Embedding and attention, of which q_proj, k_proj, v_proj and "
        "out_proj can be named; all Linear layers and attention projections that are not in train if not set",
    ] = None
    train: Annotated[Names, "layers that are trained whole, such as a new head"] = field(default_factory=list)
    storage: Annotated[
        Literal["float32", "bfloat16"],
        "of frozen Linear layers, and the type they are multiplied in; norms, sums and what is trained are float32",
    ] = "float32"

    def adapt(self, module: nn.Module, *, seed: int) -> nn.Module:
        """A copy of the module with adapters; everything but them and `train` is frozen."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return adapters.adapted(module, self)


def lora(
    module: nn.Module,
    *,
    rank: int = 4,
    alpha: float | None = None,
    targets: list[str] | None = None,
    train: list[str] | None = None,
    storage: str = "float32",
    seed: int = 0,
) -> nn.Module:
    """Return a copy of a module with low-rank adapters, all of it frozen but them and the layers in `train`.

    rank, alpha, targets, train, storage: the keys of the table [lora]; a name means every layer whose name it is, or
        ends with.
    seed: of the values that A, or B of an embedding, starts with: the same at all ranks and in a resumed run.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> net = lora(net, rank=4, targets=["0"], train=["2"])
    >>> [name for name, p in net.named_parameters() if p.requires_grad]
    ['0.lora_A.weight', '0.lora_B.weight', '2.weight', '2.bias']
    """
    check_is_module(module)
    given = {"rank": rank, "alpha": alpha, "targets": targets, "train": train or [], "storage": storage}
    try:
        options: LoRA = TypeAdapter(Annotated[LoRA, Table()]).validate_python(given)
    except ValidationError as error:
        raise user_error(error, given, "lora") from None
    return options.adapt(module, seed=seed)


def merge_lora(module: nn.Module) -> nn.Module:
    """Return a copy of a module with every adapter added into its layer: the layers, and names, from before `lora`."""
    return adapters.merged(module)
