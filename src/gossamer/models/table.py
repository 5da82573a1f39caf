"""The table [model]: a kind is a dataclass whose fields are its options and whose `make` is the network.

Nothing here loads torch before `make` is called, so that a configuration can be checked quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from gossamer.options.registry import Registry

if TYPE_CHECKING:
    from torch import nn


class Model(Protocol):
    kind: ClassVar[str]

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network, initialised by torch's defaults from the caller's torch generator.

        input_shape: shape of one record without the batch axis; images are (channels, height, width).
        """
        ...


models: Registry[Model] = Registry("model")
