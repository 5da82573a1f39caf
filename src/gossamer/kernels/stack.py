"""One model's parameters as one flat row, so that many nodes' parameters are one (m, d) matrix."""

from __future__ import annotations

import hashlib
from itertools import accumulate
from math import prod

import torch
from torch import Tensor, nn


class ParameterStack:
    """The layout of a module's trained parameters in a row of length d: `named_parameters()` order, flattened.

    A parameter is trained if it requires a gradient; the others are frozen and, like buffers, stay in the module.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = tuple(name for name, _ in named)
        self.shapes = tuple(tuple(p.shape) for _, p in named)
        *offsets, self.dim = accumulate(map(prod, self.shapes), initial=0)
        self.offsets = tuple(offsets)

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's trained parameters as one new row (d,)."""
        parameters = [module.get_parameter(name).detach().reshape(-1) for name in self.names]
        return torch.cat(parameters) if parameters else torch.empty(0)

    def views(self, points: Tensor) -> dict[str, Tensor]:
        """Each parameter of every node, (m, *shape), as views into `points` (m, d)."""
        if points.ndim != 2 or points.shape[1] != self.dim:
            raise ValueError(f"points have shape {tuple(points.shape)}, this model needs (m, {self.dim})")
        rows = len(points)
        return {
            name: points[:, at : at + prod(shape)].view(rows, *shape)
            for name, shape, at in zip(self.names, self.shapes, self.offsets, strict=True)
        }

    @torch.no_grad()
    def load(self, module: nn.Module, point: Tensor) -> None:
        """Copy one row (d,) into the module's trained parameters."""
        for name, view in self.views(point.reshape(1, -1)).items():
            module.get_parameter(name).copy_(view[0])


def fixed_values(module: nn.Module) -> dict[str, Tensor]:
    """What training leaves as it is, by name: frozen parameters and buffers."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return frozen | {name: buffer.detach() for name, buffer in module.named_buffers()}


def fixed_digest(module: nn.Module) -> str:
    """sha256 of the names, types and bytes of `fixed_values`."""
    content = hashlib.sha256()
    for name, value in fixed_values(module).items():
        content.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        content.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()
