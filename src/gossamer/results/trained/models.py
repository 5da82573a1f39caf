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
from gossamer.models.tasks import Regression
from gossamer.results.metrics import BATCH
from gossamer.results.trained.description import Description
from gossamer.results.trained.weights import StoredWeights, Weights

Node = int | Literal["average"]


class Models:
    """`network` makes the architecture anew, with any weights; `data_dir`: where public sets are looked for."""

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
        """From a run directory; `module`: the user's own, where the run was of one. Nothing in it is executed."""
        weights = StoredWeights(run)
        description = weights.description

        def network() -> nn.Module:
            return description.network(copy.deepcopy(module))

        return cls(description, weights, network, data_dir)

    @property
    def nodes(self) -> list[int]:
        """Whose models are at hand; of a run over several machines, those of this one."""
        return list(self._weights.nodes)

    def whose(self, node: Node | None = None) -> Node:
        """The node that is meant; None: the mean of all nodes' models, or at a site of a study the site's own."""
        if node is None:
            return "average" if self._weights.has_average else self.nodes[0]
        if node == "average" and not self._weights.has_average:
            raise UserError(
                "node = 'average' is in no file of a site, which has its own model alone; leave it out, or name "
                f"{_nodes(self.nodes)}."
            )
        return node

    def weights(self, node: Node | None = None) -> dict[str, Tensor]:
        """Parameter → values, of one node or of the mean of all nodes' models; None: see `whose`."""
        node = self.whose(node)
        if node == "average":
            return self._weights.average()
        if type(node) is not int or not 0 <= node < self.description.nodes:
            last = self.description.nodes - 1
            raise UserError(f"node = {node!r} is no node of this run: name 0 to {last}, or 'average'.")
        if node not in self._weights.nodes:
            raise UserError(
                f"the model of node {node} lies where that node was hosted; here are those of {_nodes(self.nodes)}"
                f"{', and the average' * self._weights.has_average}."
            )
        return self._weights.of(node)

    def state(self, node: Node | None = None) -> dict[str, Tensor]:
        """The same, with the frozen parameters and the buffers, which all nodes share."""
        return self._weights.fixed() | self.weights(node)

    def module(self, node: Node | None = None) -> nn.Module:
        """A network of its own with those weights, in evaluation mode."""
        values, made = self.state(node), self._network()
        self.description.check_fits(made, "the module")
        own = {name: value.detach() for name, value in [*made.named_parameters(), *made.named_buffers()]}
        for name, value in values.items():
            if name not in own or own[name].shape != value.shape:
                shape = tuple(value.shape)
                raise UserError(f"the module has no {name!r} of shape {shape}, which the run kept frozen.")
            own[name].copy_(value)
        return made.cpu().eval()

    def outputs(self, x: Any, node: Node | None = None) -> Tensor:
        """(rows, outputs) what the network gives for these rows, after the steps that training rows went through."""
        rows = self.description.inputs.prepared(self.description.inputs.records(x), self._data_dir)
        if rows.shape[1:] != self.description.input_shape:
            raise UserError(
                f"a record becomes {rows.shape[1:]} numbers here, and the model takes {self.description.input_shape}."
            )
        inputs, made = torch.from_numpy(np.ascontiguousarray(rows)), self.module(node)
        with torch.no_grad():
            parts = [made(inputs[at : at + BATCH]) for at in range(0, len(inputs), BATCH)]
        return torch.cat(parts) if parts else torch.zeros(0, self.description.outputs)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """(rows,) the classes by their names, or the numbers of a regression; (rows, labels) 0 or 1 of several."""
        return self.decide(self.outputs(x, node))

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """(rows, classes or labels) in the order of `description.names`."""
        found = self.chances(self.outputs(x, node))
        if found is None:
            what = (
                "a regression has no classes"
                if isinstance(self.description.prediction, Regression)
                else "its loss gives it none"
            )
            raise UserError(f"this model has no probabilities: {what}; use predict, or outputs.")
        return found

    def decide(self, outputs: Tensor) -> NDArray[Any]:
        found: NDArray[Any] = self.description.prediction.decide(outputs).numpy()
        return found if self.description.classes is None else np.asarray(self.description.names)[found]

    def chances(self, outputs: Tensor) -> NDArray[np.float32] | None:
        """Probabilities of the classes, or labels, where the loss gives the outputs such a meaning."""
        found = self.description.prediction.chances(outputs)
        return None if found is None else found.numpy()


def _nodes(nodes: list[int]) -> str:
    ends = [at for at in range(1, len(nodes)) if nodes[at] != nodes[at - 1] + 1]
    runs = [nodes[a:b] for a, b in zip([0, *ends], [*ends, len(nodes)], strict=True)]
    return f"node{'s' * (len(nodes) != 1)} " + ", ".join(
        f"{r[0]}–{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs if r
    )
