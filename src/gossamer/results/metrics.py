"""Measures of the nodes' models on a hold-out, and their distance from each other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.kernels.direct import speed_up_pools
from gossamer.kernels.oracle import Raising
from gossamer.kernels.rounding import outputs_or_nan
from gossamer.kernels.stack import ParameterStack
from gossamer.models.losses import Task
from gossamer.models.measures import Measure, Predictions, key_of, measures_of
from gossamer.runtime.group import Group

BATCH = 2000  # records at a time; predictions take as many, so that every output is the same to the last bit


@dataclass
class Evaluator:
    """The measures and the loss of every node's model and of the average model.

    Every process judges the models of the nodes hosted there; figures travel, and of the models only their sum.
    """

    module: nn.Module
    stack: ParameterStack
    loss: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor
    _: KW_ONLY
    task: Task
    group: Group
    measures: Sequence[Measure] = ()
    truth: Any = None  # the coefficients of a made-up set, which a model of the same size is measured against
    scored: Sequence[int] | None = None  # rows of the nodes hosted here that are judged; None: all of them

    def __post_init__(self) -> None:
        self.module = copy.deepcopy(self.module).eval()
        self.measures = self.measures or measures_of(None, self.task)
        speed_up_pools(self.module)
        if self.truth is not None:
            self.truth = torch.as_tensor(self.truth).flatten()
            self.truth = self.truth if self.truth.numel() == self.stack.dim else None

    def __call__(self, points: Tensor, rows: int | None = None) -> dict[str, Any]:
        """`rows`: use only so many rows of the hold-out."""
        mean = self.group.mean(points)
        squares = self.group.join((points - mean).norm(dim=1).square().tolist(), per_node=True)
        distance = (sum(squares) / len(squares)) ** 0.5
        result: dict[str, Any] = {"consensus_distance": distance, **self._error(points, mean)}
        if len(self.x) == 0:
            return result
        x, y = self.x[:rows], self.y[:rows]
        scores = self._scores(points, x, y)
        own: Any = self._score(mean, x, y) if self.group.first else None
        average = self.group.join([own])[0]
        for place, measure in enumerate(self.measures):
            name, values = key_of(measure), [score[place] for score in scores]
            result |= {**_summary(name, values, average[place]), f"{name}_by_node": values}
        losses = [score[-1] for score in scores]
        return {**result, **_summary("loss", losses, average[-1]), "hold_out_rows": len(x)}

    def _scores(self, points: Tensor, x: Tensor, y: Tensor) -> list[Any]:
        if self.scored is None:
            return self.group.join([self._score(point, x, y) for point in points], per_node=True)
        own = [self._score(points[i], x, y) for i in self.scored]
        return [score for scores in self.group.join([own]) for score in scores]

    def _error(self, points: Tensor, mean: Tensor) -> dict[str, Any]:
        """Root mean squared error of the coefficients."""
        if self.truth is None:
            return {}
        truth = self.truth.to(points)
        errors = self.group.join((points - truth).square().mean(1).sqrt().tolist(), per_node=True)
        return _summary("truth_rmse", errors, float((mean - truth).square().mean().sqrt()))

    def _score(self, point: Tensor, x: Tensor, y: Tensor) -> list[float]:
        """The measures in their order, then the loss."""
        outputs, loss = self._outputs(point, x, y)
        predictions = Predictions(self.task, outputs, y)
        return [*(measure.of(predictions) for measure in self.measures), loss / len(x)]

    @torch.no_grad()
    def _outputs(self, point: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        parameters = {name: view[0] for name, view in self.stack.views(point[None]).items()}
        parts, loss, of = [], 0.0, lambda rows: functional_call(self.module, parameters, (rows,))
        with torch.random.fork_rng(devices=[]), Raising():  # a network may draw also here: then the same for all
            seed = torch.default_generator.manual_seed if point.device.type == "cpu" else torch.manual_seed
            seed(0)  # torch.manual_seed keeps a stack for a CUDA that may never be used, at each call
            for start in range(0, len(x), BATCH):
                outputs = outputs_or_nan(of, x[start : start + BATCH])
                loss += float(self.loss(outputs, y[start : start + BATCH]).double().sum())
                parts.append(outputs)
        return torch.cat(parts), loss


def _summary(name: str, values: Sequence[float], average: float) -> dict[str, float]:
    return {
        f"{name}_mean": sum(values) / len(values),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
        f"{name}_average_model": average,
    }
