"""What can be done with a run's models, for whoever holds them: an outcome, or a run read back from its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.results.trained.models import Models, Node

if TYPE_CHECKING:
    from torch import nn


class UsesModels:
    """Needs `models`, a field or a property."""

    models: Models

    def module(self, node: Node | None = None) -> nn.Module:
        """The trained network, in evaluation mode: of one node, or "average", the mean of all nodes' models.

        None is the average, and of a site's part in a study the site's own model: a site has no other.
        """
        return self.models.module(node)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """Classes by their names, or numbers, for rows as they come: arrays, tensors, frames."""
        return self.models.predict(x, node)

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """(rows, classes) in the order of `models.description.names`."""
        return self.models.predict_proba(x, node)
