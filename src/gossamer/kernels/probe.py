"""A second look at a method, on made-up records: is it the gradient of the module as the module is called?

That records are kept apart is decided elsewhere, on graphs (`apart`, `oracle`); a sample of records proves nothing.
This finds a mistake in that: a trace that is not the module, a layer that is used past its rule.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.errors import UserError
from gossamer.kernels.finite import NotFiniteError
from gossamer.kernels.stack import ParameterStack

if TYPE_CHECKING:
    from gossamer.kernels.clipped_sum import Method

SIZES = (1e-6, 1.0, 1e6)
TOLERANCE = 1e-2  # of the norm: above float32 rounding in deep networks, below a forgotten layer
NOTHING = 1e-6  # what inputs of 1e6 may add to the norm of a gradient that vanishes, see `layers.gram_sum`


def disagreement(
    make: Callable[[nn.Module], Method], method: Method, points: Tensor, x: Tensor, y: Tensor
) -> str | None:
    """In what the method differs from plain gradients of its module; None if in nothing.

    A module that draws at random (dropout) can only be compared in evaluation: the method is made once more for that.
    """
    if points.device.type == "meta":  # shapes only, nothing to compare
        return None
    if method.random:
        method = make(copy.deepcopy(method.original).eval())
    if method.random:  # also in evaluation
        return None
    # Next to the first node's point: at 0, where some models start, many gradients vanish and prove nothing.
    away = 0.05 * torch.randn(1, points.shape[1], generator=torch.Generator().manual_seed(1))
    point, (records, targets) = points[:1] + away.to(points), _made_up(x, y)
    each = [(records[b : b + 1], targets[b : b + 1]) for b in range(len(records))]
    plain = [_gradient(method, point, *one) for one in each]
    finite = [b for b in range(len(plain)) if bool(plain[b].norm().isfinite())]
    exact = [b for b in finite if _is_exact(plain[b], _gradient(method, point, *each[b], double=True))]
    usable = exact or finite
    # All, then one by itself: a lot's size must not matter.
    for chosen in filter(None, (usable, usable[1:2] or usable[:1])):
        mask = torch.ones(1, len(chosen), dtype=torch.bool, device=x.device)
        lot, total = (records[None, chosen], targets[None, chosen]), torch.zeros_like(point)
        try:
            norms = method.weighted(point, *lot, mask, torch.ones_like, target=total, add=False)
        except NotFiniteError:
            return "its gradients are not finite where those of the module are"
        sizes = torch.stack([plain[b].norm() for b in chosen])
        if not bool(((norms[0] - sizes).abs() <= TOLERANCE * sizes + NOTHING).all()):
            return "its per-sample norms differ from plain gradients"
        if not bool((total[0] - sum(plain[b] for b in chosen)).norm() <= TOLERANCE * sizes.sum() + NOTHING):
            return "its gradients differ from plain gradients"
    return None


def _is_exact(gradient: Tensor, in_double: Tensor) -> bool:
    """Is it the gradient, and not its rounding? A module that only computes in float32 is taken at its word.

    Attention before a LayerNorm multiplies inputs of 1e6 and subtracts them again: of what is left no digit is right,
    in whatever order it is computed, and two right methods differ.
    """
    if not bool(in_double.isfinite().all()):
        return True
    away = (gradient.double() - in_double).norm()
    return bool(away <= TOLERANCE / 4 * in_double.norm() + NOTHING)


def _gradient(method: Method, point: Tensor, x: Tensor, y: Tensor, *, double: bool = False) -> Tensor:
    """One record's by a copy of the module as its author wrote it; not a number where that fails, as on huge values."""
    module, x = copy.deepcopy(method.original), x.clone()
    if double:
        module, point = module.double(), point.double()
        x, y = (part.double() if part.is_floating_point() else part for part in (x, y))
    views = ParameterStack(method.original).views(point)
    own = {name: view[0].clone().requires_grad_() for name, view in views.items()}
    with torch.enable_grad():
        try:
            value = method.loss(functional_call(module, own, (x,)), y)
        except (
            Exception
        ):  # it takes numbers for places, and these are in no table; or it is for float32 alone
            return torch.full_like(point[0], torch.nan)
        if not value.requires_grad:
            raise UserError(f"model: the loss depends on no parameter of {type(method.original).__name__}.")
        parts = torch.autograd.grad(
            value.sum(), list(own.values()), materialize_grads=True, allow_unused=True
        )
    return torch.cat([part.to_dense().flatten() for part in parts])


def _made_up(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Three records like those of x (m, B, …): normal values of three sizes, or the tokens 0 and 1; targets of 0."""
    shape, ones = (len(SIZES), *x.shape[2:]), [1] * (x.ndim - 2)
    if x.is_floating_point():
        values = torch.tensor(SIZES).view(-1, *ones) * torch.randn(
            shape, generator=torch.Generator().manual_seed(0)
        )
    else:
        values = (torch.arange(len(SIZES)) % 2).view(-1, *ones).expand(shape)
    return values.to(x), y.new_zeros(len(SIZES), *y.shape[2:])
