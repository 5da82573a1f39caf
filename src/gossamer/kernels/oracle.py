"""Per-sample gradients by vmap, spelled out: slow and hungry, but right for every module vmap accepts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gossamer.kernels.finite import refuse_infinite
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


class Vmap:
    """Σ_b w(‖g_ib‖) g_ib from materialised per-sample gradients: the reference for every other method."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.module, self.loss = module, loss
        self.bytes_per_record = (
            8 * ParameterStack(module).dim
        )  # the gradient, and its pieces before they are joined

    def weighted(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Callable[[Tensor], Tensor],
        *,
        target: Tensor,
        add: bool,
    ) -> Tensor:
        """Put the sums of a slice, or add them, into `target` (m, d); return the norms (m, B)."""
        gradients = per_sample_gradients(self.module, self.loss, points.detach(), x, y).detach()
        norms = torch.where(mask, torch.linalg.vector_norm(gradients, dim=2), 0.0)
        refuse_infinite(norms)
        weights = torch.where(mask, weigh(norms), 0.0)
        total = torch.bmm(weights.unsqueeze(1), gradients).squeeze(1)
        _ = target.add_(total) if add else target.copy_(total)
        return norms
