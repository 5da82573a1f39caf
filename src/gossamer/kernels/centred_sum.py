"""Records less their mean: first the mean is measured, then gradients are taken at centred records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gossamer.kernels.clipped_sum import ClippedSum, blank_masked
from gossamer.kernels.norms import norms_of


class CentredSum:
    """A clipped sum over parameters (c, θ), c of the records' size p.

    While c is 0: Σ weigh(‖x‖) x in the place of c. Then: the inner sum at centred records in the place of θ. What is to
    be done follows from the point alone, so that a run that is resumed goes on as it would have.
    """

    def __init__(self, inner: ClippedSum, size: int, centre: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._inner, self._size, self._centre = inner, size, centre
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Callable[[Tensor], Tensor],
        *,
        unit: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        total, p = torch.zeros_like(points), self._size
        records = x.flatten(2)
        if not bool(points[:, :p].any()):
            norms = norms_of(records.flatten(0, 1)).view(mask.shape)
            mask = mask & norms.isfinite()
            norms = norms.where(mask, torch.zeros_like(norms))
            weights = weigh(norms if unit is None else norms / unit[:, None]).where(
                mask, torch.zeros_like(norms)
            )
            records = records if bool(mask.all()) else blank_masked(records, mask)
            torch.bmm(weights[:, None], records, out=total[:, None, :p])
            return total, norms
        sums, norms = self._inner(
            points[:, p:].contiguous(),
            self._centred(x, records, points[:, None, :p]),
            y,
            mask,
            weigh,
            unit=unit,
        )
        total[:, p:] = sums
        return total, norms

    def draw_from(self, *where: Any) -> None:
        self._inner.draw_from(*where)

    def try_on(self, x: Tensor, y: Tensor) -> None:
        self._inner.try_on(x.flatten(2), y)

    def _centred(self, x: Tensor, records: Tensor, centre: Tensor) -> Tensor:
        """Full lots come again as the same tensor, and the mean moves no more: then once is enough."""
        if self._kept is None or self._kept[0] is not x or not torch.equal(self._kept[1], centre):
            self._kept = x, centre.clone(), self._centre(records, centre)
        return self._kept[2]
