"""Per-sample gradients by vmap, spelled out: slow and hungry, but right for every module vmap accepts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gossamer.kernels.stack import ParameterStack


def per_sample_gradients(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], points: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """The gradient of every record of every node at that node's point: (m, B, d)."""
    stack = ParameterStack(module)
    lot = x.shape[1]
    if lot == 0 or len(points) == 0:
        return points.new_zeros(len(points), lot, stack.dim)

    def sample_loss(parameters: dict[str, Tensor], one_x: Tensor, one_y: Tensor) -> Tensor:
        output = functional_call(module, parameters, (one_x.unsqueeze(0),))
        return loss(output, one_y.unsqueeze(0)).squeeze(0)

    of_lot = vmap(grad(sample_loss), in_dims=(None, 0, 0), randomness="different")
    gradients = vmap(of_lot, randomness="different")(stack.views(points), x, y)
    return torch.cat([gradients[name].flatten(2) for name in stack.names], dim=2)


class VmapClippedSum:
    """Σ_b w(‖g_ib‖) g_ib from materialised per-sample gradients: the reference for every other kernel."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.module, self.loss = module, loss
        self.stack = ParameterStack(module)

    def bytes_per_sample(self, x: Tensor) -> int:
        """The gradient itself, and vmap's pieces of it before they are joined."""
        return 8 * self.stack.dim

    def weighted(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        gradients = per_sample_gradients(self.module, self.loss, points, x, y)
        norms = torch.linalg.vector_norm(gradients, dim=2) * mask
        weights = torch.where(mask, weigh(norms), 0.0)
        return torch.bmm(weights.unsqueeze(1), gradients).squeeze(1), norms
