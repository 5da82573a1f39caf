"""The kinds of networks at a size that is quick to check."""

from typing import Any

import torch
from torch import nn

from gossamer.models.networks import build, models

# Narrow residual networks, so that the checks stay quick; the full width is counted below.
SMALL: dict[str, dict[str, Any]] = {"resnet9": {"width": 8}, "resnet18": {"width": 8}}


KINDS = [kind for kind in models if kind not in ("lookup", "minilm", "own")]  # those that read images


def make(kind: str, shape: tuple[int, ...], outputs: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build(kind, input_shape=shape, outputs=outputs, **SMALL.get(kind, {}))


def count(kind: str, shape: tuple[int, ...], outputs: int = 10, **options: Any) -> int:
    network = build(kind, input_shape=shape, outputs=outputs, **options)
    return sum(p.numel() for p in network.parameters())
