"""The models of a run, ready to be used: as torch modules, and for predictions on new rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.models.losses import Regression
from gossamer.results.metrics import BATCH
from gossamer.results.trained.description import Description
from gossamer.results.trained.weights import StoredWeights, Weights

Node = int | Literal["average"]


class Models:
    """The models of a run; `network` builds the architecture, `data_dir`: where public sets are looked for."""

    def __init__(
        self,
        description: Description,
        weights: Weights,
        network: Callable[[], nn.Module],
        data_dir: Path | None = None,
    ):
        self.description, self._weights = description, weights
        self._network, self._data_dir = network, data_dir

    @classmethod
    def stored(cls, run: Path, module: nn.Module | None = None, data_dir: Path | None = None) -> Models:
        """Read a run directory, of which nothing is executed; `module`: the user's own, if the run was of one."""
        weights = StoredWeights(run)
        description = weights.description
        return cls(description, weights, lambda: description.network(copy.deepcopy(module)), data_dir)

    @property
    def nodes(self) -> list[int]:
        """The nodes whose models are at hand; of a run over several machines, those of this one."""
        return list(self._weights.nodes)

    def whose(self, node: Node | None = None) -> Node:
        """Return the node that is meant; None: the mean of all nodes' models, or at a site of a study its own."""
        if node is None:
            return "average" if self._weights.has_average else self.nodes[0]
        if node == "average" and not self._weights.has_average:
            remedy = f"leave it out, or name {_nodes(self.nodes)}"
            raise UserError(f"node = 'average': a site has its own model alone; {remedy}.")
        return node

    def weights(self, node: Node | None = None) -> dict[str, Tensor]:
        """Return parameter → values, of one node or of the mean of all nodes' models; None: see `whose`."""
        node = self.whose(node)
        if node == "average":
            return self._weights.average()
        if type(node) is not int or not 0 <= node < self.description.nodes:
            last = self.description.nodes - 1
            raise UserError(f"node = {node!r} is not a node of this run: name 0 to {last}, or 'average'.")
        if node not in self._weights.nodes:
            here = _nodes(self.nodes) + ", and the average" * self._weights.has_average
            raise UserError(f"the model of node {node} is where it was hosted; here are those of {here}.")
        return self._weights.of(node)

    def state(self, node: Node | None = None) -> dict[str, Tensor]:
        """Return the weights with the frozen parameters and the buffers, which all nodes share."""
        return self._weights.fixed() | self.weights(node)

    def module(self, node: Node | None = None) -> nn.Module:
        """Return a network of its own with those weights, in evaluation mode."""
        values, network = self.state(node), self._network()
        self.description.check_fits(network, "the module")
        own = {name: v.detach() for name, v in [*network.named_parameters(), *network.named_buffers()]}
        for name, value in values.items():
            if name not in own or own[name].shape != value.shape:
                shape = tuple(value.shape)
                raise UserError(f"the module has no {name!r} of shape {shape}, which the run kept frozen.")
            own[name].copy_(value)
        return network.cpu().eval()

    def outputs(self, x: Any, node: Node | None = None) -> Tensor:
        """Return (rows, outputs) of the network for these rows, after the steps that training rows went through."""
        d = self.description
        rows = d.inputs.prepared(d.inputs.records(x), self._data_dir)
        if rows.shape[1:] != d.input_shape:
            raise UserError(f"records of shape {rows.shape[1:]}: the model takes {d.input_shape}.")
        inputs, network = torch.from_numpy(np.ascontiguousarray(rows)), self.module(node)
        with torch.no_grad():
            parts = [network(inputs[at : at + BATCH]) for at in range(0, len(inputs), BATCH)]
        return torch.cat(parts) if parts else torch.zeros(0, d.outputs)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """Return (rows,) classes by name, or the numbers of a regression; (rows, labels) 0 or 1 of several."""
        return self.decide(self.outputs(x, node))

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """Return (rows, classes or labels) in the order of `description.names`."""
        chances = self.chances(self.outputs(x, node))
        if chances is None:
            regression = isinstance(self.description.prediction, Regression)
            what = "a regression has no classes" if regression else "its loss gives it none"
            raise UserError(f"this model has no probabilities: {what}; use predict, or outputs.")
        return chances

    def decide(self, outputs: Tensor) -> NDArray[Any]:
        decisions: NDArray[Any] = self.description.prediction.decide(outputs).numpy()
        named = self.description.classes is not None
        return np.asarray(self.description.names)[decisions] if named else decisions

    def chances(self, outputs: Tensor) -> NDArray[np.float32] | None:
        """Return probabilities of the classes, or labels, where the loss gives the outputs such a meaning."""
        chances = self.description.prediction.chances(outputs)
        return None if chances is None else chances.numpy()


class UsesModels:
    """Predictions of an outcome, or of a run read from its directory; needs `models`, a field or a property."""

    models: Models

    def module(self, node: Node | None = None) -> nn.Module:
        """Return the trained network, in evaluation mode: of one node, or "average", the mean of all nodes' models.

        None is the average, and of a site's part in a study the site's own model: a site has no other.
        """
        return self.models.module(node)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """Predict classes by name, or numbers, for rows as they come: arrays, tensors, frames."""
        return self.models.predict(x, node)

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """Return (rows, classes) in the order of `models.description.names`."""
        return self.models.predict_proba(x, node)


def _nodes(nodes: list[int]) -> str:
    whole = nodes == list(range(nodes[0], nodes[-1] + 1)) and len(nodes) > 1
    return f"nodes {nodes[0]}–{nodes[-1]}" if whole else f"node {', '.join(map(str, nodes))}"
