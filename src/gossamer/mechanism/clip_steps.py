"""The clip of one draw: how records are weighed, and what is done to the sum of a lot.

Either each record's vector has a bound, or the mean of the lot as a whole: then nothing bounds a record's own share,
and any change of the lot may move what is released by up to twice the bound, from one side of its ball to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.kernels.persons import Persons
from gossamer.mechanism.schedules import Constant, Schedule
from gossamer.options.types import MOST_BOUND

Weigh = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClipStep:
    """The clip of one draw."""

    weigh: Weigh
    reference: Tensor  # (m,) what the noise is scaled to
    enforced: bool  # is the reference also a bound on every record's contribution?
    unit: Tensor | None = (
        None  # (m,) what each node's norms are measured in before `weigh`; None: plain norms
    )
    of_lot: bool = False  # does the reference bound the sum of the lot, and no record by itself?

    def sums(
        self,
        vector: Callable[..., tuple[Tensor, Tensor]],
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        persons: Persons | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(m, d) what noise goes on: the vector's weighted sums, clipped as a whole if asked; and the norms (m, B).

        Of `persons` their norms, (m, P). A vector that knows of no persons is never asked about them.
        """
        unit = None if self.unit is None else self.unit[: len(points)].to(points)
        whose = {} if persons is None else {"persons": persons}
        sums, norms = vector(points, x, y, mask, self.weigh, unit=unit, **whose)
        if self.of_lot:
            lengths = torch.linalg.vector_norm(sums, dim=1, dtype=torch.float64)
            most = self.reference[: len(points)].to(lengths)
            sums.mul_((most / lengths.clamp_min(1e-30)).clamp_max(1.0).to(sums)[:, None])
        return sums, norms


class PublicBound:
    """What most kinds and clips share: a bound that is enforced, and that no record has a say in."""

    kind: ClassVar[str]
    enforced: ClassVar[bool] = True
    assumes: ClassVar[bool] = False
    follows_records: ClassVar[bool] = False
    stays: ClassVar[bool] = False
    scale_is_public: ClassVar[bool] = True

    @property
    def of_lot(self) -> bool:
        return False

    @property
    def unit(self) -> float:
        return 1.0

    @property
    def record_bound(self) -> float:
        return math.inf

    def schedule(self, draws: int) -> Schedule:
        return Constant(1.0)

    def multiplier_left(self, multiplier: Tensor) -> Tensor:
        return multiplier

    def follow(
        self, norms: Tensor, mask: Tensor, normals: Callable[[], Tensor], lots: Tensor, active: Tensor
    ) -> None:
        """Nothing is followed."""

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """There is nothing to put back."""


@dataclass(frozen=True)
class ClipLotTo(PublicBound):
    """ḡ · min(1, C_k / ‖ḡ‖) for the lot's mean ḡ, its sum over the public lot size L: the sum is clipped to L · C_k.

    L is the expected size and not the number drawn, which nobody may know; both would cost the same, since the price
    rests on the ball that the value ends up in. Single records are held below 1e12 only so that the sum stays finite.
    """

    bound: Schedule
    lots: Tensor  # (m,) L

    def at(self, k: int, nodes: int) -> ClipStep:
        reference = self.bound(k) * self.lots[:nodes].double()
        return ClipStep(lambda norms: clip_weights(norms, MOST_BOUND), reference, enforced=True, of_lot=True)


def clip_weights(norms: Tensor, C: float) -> Tensor:
    # A zero gradient keeps weight 1; the tiny floor only avoids 0/0.
    return (C / norms.clamp_min(1e-30)).clamp_max(1.0)
