"""Images → the last averages of a network with public weights, trained on other records long before.

The weights are fixed and public and an image goes through them by itself: with neighbouring data sets all other records
have the same features, so what a run proves of the features it proves of the images.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.data import weights as known
from gossamer.data.features.efficientnet import FEATURES, EfficientNetLite
from gossamer.data.features.efficientnet import stages as all_stages
from gossamer.data.features.steps import Shape, check_images
from gossamer.errors import UserError
from gossamer.options.nearest import ending

_TOGETHER = 4  # images: the widest layer of more does not stay in a core's cache
_BLACK, _GREY = 127 / 255, 128 / 255  # the weights were trained on (value − 127) / 128


class Pretrained:
    """Pixels in [0, 1], grey or in colour, enlarged to side × side; 1,280 numbers of at least 0.

    `stages`: after them the means of the last so many stages, of any sign and at scales of their own.
    """

    data_dir: Path | None = None  # where weights may lie, beside the cache

    def __init__(
        self,
        before: Shape,
        *,
        weights: str = "efficientnet-lite2",
        side: int = 128,
        mirror: bool = False,
        stages: int = 0,
    ) -> None:
        check_images("pretrained", before)
        if weights not in known.KNOWN:
            raise UserError(
                f"data.transform: pretrained has weights = {weights!r}; there are {', '.join(known.KNOWN)}"
                f"{ending(weights, known.KNOWN)}"
            )
        if before[0] not in (1, 3):
            raise UserError(
                f"data.transform: pretrained needs 1 or 3 channels; these images have {before[0]}."
            )
        if not 32 <= side <= 512:
            raise UserError(f"data.transform: pretrained has side = {side}; use 32 to 512 pixels.")
        channels = [
            stage.channels for stage in all_stages(known.KNOWN[weights].width, known.KNOWN[weights].depth)
        ]
        if not 0 <= stages <= len(channels):
            raise UserError(
                f"data.transform: pretrained has stages = {stages}; there are {len(channels)}, and 0 for none."
            )
        self.weights, self._side, self._mirror, self._stages = weights, side, mirror, stages
        self.shape: Shape = (FEATURES + sum(channels[len(channels) - stages :]),)
        self._network: EfficientNetLite | None = None

    def __call__(self, block: Tensor) -> Tensor:
        if (
            self._network is None
        ):  # not before it is needed: a shape, or features in the cache, need no weights
            entry = known.KNOWN[self.weights]
            content, _ = known.find(self.weights, self.data_dir)
            self._network = EfficientNetLite(known.tensors(content), width=entry.width, depth=entry.depth)
        starts = range(0, len(block), _TOGETHER)
        return torch.cat([self._features(block[at : at + _TOGETHER], self._network) for at in starts])

    def _features(self, images: Tensor, network: EfficientNetLite) -> Tensor:
        images = images.expand(-1, 3, -1, -1)
        large = functional.interpolate(images, (self._side, self._side), mode="bilinear", align_corners=False)
        large = ((large - _BLACK) / _GREY).contiguous(memory_format=torch.channels_last)
        found: Tensor = network(large, self._stages)
        return (found + network(large.flip(3), self._stages)) / 2 if self._mirror else found
