"""Vector parts of resolvents: what prox_{γf} moves a point by, for losses of linear models, all nodes at once.

Both give the gradient of a Moreau envelope, (v − prox_{γf}(v)) / γ, as a vector part for `PrivateGradient`:

* `RecordResolvent`: f is one record's loss. The mean over a lot is a mean of vectors that each depend on one record, so
  each can be clipped and the sum has a sensitivity. Its zero is off the optimum of the mean loss by an order of γ.
* `NodeResolvent`: f is the mean loss of the lot. Exact, but every record is in the whole vector: clipping it bounds no
  record's influence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer.kernels.products import added_up, dots_and_squares
from gossamer.kernels.threads import runs_compiled
from gossamer.mechanism.clipping import Weigh

BLOCK = 1024  # numbers at a time: a multiple of every vector's length, and too few to be shared among threads
ImplicitSlope = Callable[[Tensor, Tensor, Tensor], Tensor]  # (⟨a, v⟩, y, c) → slope at the proximal point


@dataclass(frozen=True)
class RecordResolvent:
    implicit_slope: ImplicitSlope
    step: float  # γ

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # In double precision: in single, a tiny record's square is 0, and a norm of 0 would pass every clip.
        a = x.flatten(2).double()
        at, squared = _of_each(a, points.double())
        slopes = in_blocks(self.implicit_slope, at, y.double(), self.step * squared)
        norms = slopes.abs() * squared.sqrt()
        # A record that is not finite has no norm to clip; it is left out, as the gradient kernels do.
        usable = mask & norms.isfinite() & slopes.isfinite() & squared.isfinite()
        norms = torch.where(usable, norms, 0.0)
        factors = weigh(norms if unit is None else norms / unit[:, None])
        weights = torch.where(usable, factors * slopes, 0.0)
        a = a.masked_fill(~usable[..., None], 0)
        return _summed(weights, a).to(points), norms.to(points)


def _of_each(a: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """(m, B) ⟨a, v⟩ and ‖a‖², to the last bit the same for any other records."""
    if not runs_compiled(a):
        return torch.bmm(a, points[..., None])[..., 0], a.square().sum(2)
    at, squared = a.new_empty(a.shape[:2]), a.new_empty(a.shape[:2])
    dots_and_squares(*(part.detach().contiguous().numpy() for part in (a, points, at, squared)))
    return at, squared


def _summed(weights: Tensor, a: Tensor) -> Tensor:
    """Σ_b w_b a_b of each node, to the last bit however long the others' lots are."""
    if not runs_compiled(a):
        return torch.bmm(weights[:, None], a)[:, 0]
    total = a.new_empty(len(a), a.shape[2])
    added_up(*(part.detach().contiguous().numpy() for part in (weights, a, total)))
    return total


def in_blocks(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """An elementwise function of tensors of one shape, always of as many numbers at a time.

    torch takes what is left of a vector's length another way, and the last bits may differ.
    """
    missing = -given[0].numel() % BLOCK
    rows = [torch.nn.functional.pad(part.flatten(), (0, missing)).view(-1, BLOCK) for part in given]
    values = [function(*own) for own in zip(*rows, strict=True)]
    return torch.cat([*values, given[0].new_empty(0)])[: given[0].numel()].view_as(given[0])


@dataclass
class NodeResolvent:
    """prox_{γf} of the mean loss by its dual, x = v − (γ/B) Aᵀs, and accelerated proximal steps on s.

    Moreau's identity turns the step on the conjugate loss into the implicit slope: s ← slope of prox at
    (s + τ A x(s)) / τ with c = 1/τ, τ = B / (γ‖A‖²), so every loss that has one needs nothing else; with a single
    record the first step is exact. Momentum restarts where it points backwards.
    """

    implicit_slope: ImplicitSlope
    step: float  # γ
    iterations: int = 500
    _seen: tuple[Tensor, Tensor] | None = field(default=None, init=False)  # the last lot and its ‖A‖²
    # Where the last search ended: the next begins there.
    _slopes: Tensor | None = field(default=None, init=False)

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        a = x.flatten(2) * mask[..., None]
        count = mask.sum(1).clamp_min(1).to(points)[:, None]
        # Of a lot that stays the same (full batches) the norm is computed once.
        if self._seen is None or self._seen[0] is not x:
            restored = self._slopes if self._seen is None else None  # from a checkpoint
            self._seen, self._slopes = (x, torch.linalg.matrix_norm(a, ord=2).square()[:, None]), restored
        squared = self._seen[1].clamp_min(1e-12)
        tau = count / (self.step * squared)
        at = torch.bmm(a, points[..., None])[..., 0]
        slopes = self._slopes
        if slopes is None or slopes.shape != at.shape:  # the last was for lots of other lengths
            slopes = torch.zeros_like(at)
        ahead, momentum = slopes, torch.ones_like(count)
        # Each node stops by itself: who is computed next to it must not matter.
        moving = torch.ones_like(count, dtype=torch.bool)
        close = max(1e-9, 8 * torch.finfo(at.dtype).eps)  # slopes are of order 1
        for _ in range(self.iterations):
            pull = torch.bmm(torch.bmm(ahead[:, None], a), a.mT)[:, 0]  # A Aᵀ s
            new = self.implicit_slope(ahead / tau + at - self.step / count * pull, y, 1 / tau) * mask
            change = new - slopes
            backwards = ((ahead - new) * change).sum(1, keepdim=True) > 0
            following = ((1 + (1 + 4 * momentum**2).sqrt()) / 2).masked_fill(backwards, 1.0)
            onward = ((momentum - 1) / following).masked_fill(backwards, 0.0)
            ahead = torch.where(moving, new + onward * change, ahead)
            slopes, momentum = torch.where(moving, new, slopes), following
            moving = moving & (change.abs().amax(1, keepdim=True) >= close)
            if not bool(moving.any()):
                break
        self._slopes = slopes
        mean = torch.bmm(slopes[:, None], a)[:, 0] / count
        norms = (mean.norm(dim=1)[:, None] * mask).to(points)
        weights = (weigh(norms if unit is None else norms / unit[:, None]) * mask).sum(1, keepdim=True)
        return mean * weights, norms

    def state(self) -> dict[str, Tensor]:
        """Return the end of the last search, for a checkpoint: the next begins there."""
        return {} if self._slopes is None else {"slopes": self._slopes}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._slopes = state.get("slopes")
