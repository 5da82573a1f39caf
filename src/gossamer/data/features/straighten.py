"""Images of strokes set upright: what slants a digit is the hand that wrote it, not which digit it is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.data.features.steps import Shape, check_images

_STEEPEST = 1.0  # columns per row: what slants by more than 45° is no slant
_TINY = 1e-6


class Straighten:
    """The ink's centre to the middle, its rows shifted until its columns and rows no longer vary together.

    By each image's own moments: values are weights, those below 0 count as 0, of all channels together. An image
    without ink, or with all of it in one row, is only centred. What leaves the frame is lost, what comes in is 0.
    """

    def __init__(self, before: Shape) -> None:
        check_images("straighten", before)
        self.shape = before
        _, height, width = before
        self._rows = torch.arange(height) - (height - 1) / 2  # from the middle
        self._columns = torch.arange(width) - (width - 1) / 2

    def __call__(self, block: Tensor) -> Tensor:
        ink = block.clamp_min(0).sum(1)
        ink = ink / ink.sum((1, 2), keepdim=True).clamp_min(_TINY)
        by_row, by_column = ink.sum(2), ink.sum(1)
        row, column = by_row @ self._rows, by_column @ self._columns
        down = self._rows - row[:, None]  # of every row from the centre
        across = self._columns - column[:, None]
        spread = (by_row * down**2).sum(1)
        together = torch.einsum("bhw,bh,bw->b", ink, down, across)
        slant = torch.where(spread > _TINY, together / spread.clamp_min(_TINY), 0.0).clamp(
            -_STEEPEST, _STEEPEST
        )
        # Where each pixel of the result is taken from, in halves of a side from the middle.
        _, height, width = self.shape
        from_row = (self._rows + row[:, None])[:, :, None].expand(-1, -1, width)
        from_column = self._columns + column[:, None, None] + slant[:, None, None] * self._rows[:, None]
        places = torch.stack([2 * from_column / width, 2 * from_row / height], -1)
        return functional.grid_sample(
            block, places, mode="bilinear", padding_mode="zeros", align_corners=False
        )
