"""`check_clip`: does a clip keep every record within the bound that the proof rests on?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gossamer.mechanism.clipping import Clip, ClipKind, ClipStep, Weigh
from gossamer.testing.quadratics import require

NODES, DRAWS, LOT = 3, 8, 16.0
SLACK = 1 + 1e-6  # float32
# From nothing to what a spiteful record can bring.
NORMS = torch.cat([torch.zeros(1), torch.logspace(-30, 37, 400), torch.linspace(0.01, 20, 400)])


def check_clip(clip: ClipKind) -> None:
    """Raise an AssertionError, with what is to be fixed, unless no record can move a sum by more than the bound.

    `clip` is a kind with its options, as a configuration would make it. Of one that does not enforce its bound, and
    says so, only what it computes is looked at.

    >>> from gossamer.mechanism.clipping import ConstantClip
    >>> from gossamer.testing import check_clip
    >>> check_clip(ConstantClip(bound=0.5))
    """
    name = type(clip).__name__
    lots, largest = (torch.full((NODES,), size, dtype=torch.float64) for size in (LOT, 2.0))
    own = clip.make(DRAWS, lots, largest)
    for k in range(DRAWS):
        _one_draw(name, clip, own, k)
        require(
            torch.equal(own.at(k, NODES).reference, own.at(k, NODES).reference),
            f"{name}.at({k}) says another bound the second time; it must depend on the draw alone.",
        )
        _follow(name, clip, own, k, lots)
    resumed = clip.make(DRAWS, lots, largest)
    resumed.restore({key: value.clone() for key, value in own.state().items()})
    require(
        all(torch.equal(resumed.at(k, NODES).reference, own.at(k, NODES).reference) for k in range(DRAWS)),
        f"{name} has another bound after a checkpoint; state() must hold what follow() changes.",
    )


def _one_draw(name: str, clip: ClipKind, own: Clip, k: int) -> None:
    step, draw = own.at(k, NODES), f"{name}.at({k})"
    positive = tuple(step.reference.shape) == (NODES,) and bool((step.reference > 0).all())
    require(positive, f"{draw}.reference must be a positive number for each of the {NODES} nodes.")
    consistent = not clip.enforced or step.enforced or math.isfinite(clip.record_bound)
    require(consistent, f"{name} says that it enforces its bound, and its draw {k} says that it does not.")
    if step.of_lot:
        _whole_lot(name, step, k)
        return
    unit = torch.ones(NODES) if step.unit is None else step.unit.float()
    norms = NORMS.expand(NODES, -1)
    weights = step.weigh(norms / unit[:, None])
    sane = weights.shape == norms.shape and bool((weights.isfinite() & (weights >= 0)).all())
    require(sane, f"{draw}.weigh must give every norm a finite weight of at least 0: also 0 and the largest.")
    if not step.enforced:
        return
    over = weights.double() * norms.double() / step.reference.double()[:, None]
    most, at = float(over.max()), float(norms.flatten()[int(over.argmax())])
    require(
        most <= SLACK,
        f"{name}: in draw {k} a record's vector of length {at:.3g} still has {most:.3g} times the bound after its "
        "weight; the bound is what noise is scaled to, so weigh(norm) · norm may not exceed it.",
    )


def _whole_lot(name: str, step: ClipStep, k: int) -> None:
    """Lots of one record, of any length: what comes out lies in the ball."""
    for norm in NORMS.tolist():
        x = torch.full((NODES, 1, 1), norm)
        everyone = torch.ones(NODES, 1, dtype=torch.bool)
        sums, _ = step.sums(_records_themselves, torch.zeros(NODES, 1), x, x[..., 0], everyone)
        over = float((sums.abs()[:, 0].double() / step.reference.double()).max())
        lot = f"in draw {k} a lot of one record of length {norm:.3g}"
        require(over <= SLACK, f"{name}: {lot} has {over:.3g} times the bound.")


def _records_themselves(
    points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    norms = x.norm(dim=2) * mask
    return (weigh(norms)[..., None] * x * mask[..., None]).sum(1), norms


def _follow(name: str, clip: ClipKind, own: Clip, k: int, lots: Tensor) -> None:
    """Records of any length take part in a draw; a bound that follows none must not move."""
    before = own.at(k, NODES).reference.clone()
    norms = torch.rand(NODES, int(LOT), generator=torch.Generator().manual_seed(k)) * 10.0 ** (k - 4)
    active = torch.ones(NODES, dtype=torch.bool)
    own.follow(norms, torch.ones_like(norms, dtype=torch.bool), lambda counts, scale: counts, lots, active)
    require(
        clip.follows_records or torch.equal(before, own.at(k, NODES).reference),
        f"{name} moves its bound by the records' norms, and follows_records is not set: that is a release of its own, "
        "which must be paid for.",
    )
