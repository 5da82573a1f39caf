"""One model's parameters as one flat row, so that many nodes' parameters are one (m, d) matrix."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn


class ParameterStack:
    """The layout of a module's parameters in a row of length d: `named_parameters()` order, flattened."""

    def __init__(self, module: nn.Module) -> None:
        named = list(module.named_parameters())
        self.names = tuple(name for name, _ in named)
        self.shapes = tuple(tuple(p.shape) for _, p in named)
        self.offsets: tuple[int, ...] = ()
        offset = 0
        for shape in self.shapes:
            self.offsets += (offset,)
            offset += prod(shape)
        self.dim = offset

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's parameters as one new row (d,)."""
        parameters = [p.detach().reshape(-1) for p in module.parameters()]
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
        """Copy one row (d,) into the module's parameters."""
        views = self.views(point.reshape(1, -1))
        for name, parameter in module.named_parameters():
            parameter.copy_(views[name][0])
