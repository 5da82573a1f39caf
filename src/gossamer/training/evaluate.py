"""The figures of a round: measures of the models on a hold-out, their distance, and the ε spent by then.

Figures on a private hold-out come from the kept-out records of every node, which judge its final model once, with
noise. The event is in the ledger before a record is read, and what was released is kept: a resumed run reads it again,
for a second release would be paid for a second time.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.direct import speed_up_pools
from gossamer.kernels.oracle import one_output, raising, shape_of
from gossamer.kernels.rounding import outputs_or_nan
from gossamer.kernels.stack import ParameterStack
from gossamer.mechanism.summaries import private_judgement
from gossamer.models.losses import Task
from gossamer.models.measures import Cells, Measure, Predictions, cells_of, key_of, measures_of
from gossamer.results.certificate import NOT_PUBLIC
from gossamer.results.headline import DEFAULT_METRICS, SCORED
from gossamer.results.rundir import read_bytes
from gossamer.results.trained import BATCH, model_digests
from gossamer.runtime.group import Group
from gossamer.training.plan import Plan
from gossamer.training.preprocess import stored_everywhere

if TYPE_CHECKING:
    from gossamer.training.run import Run


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
        with (
            torch.random.fork_rng(devices=[]),
            raising(self.module),
        ):  # a network may draw also here: then the same for all
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


MOST_SCORED = 20_000_000  # rows × nodes of one evaluation
MOST_NODES = 1000  # whose models are judged, by default
_SAMPLE = 3  # keeps the choice apart from all else that the seed draws
FILE = "evaluation.json"
ON_PRIVATE = "private records, kept out of training, with noise that is paid for"
LOST = "a stop came between their release and their file"
OTHERS = "they were released before a stop, of other models than these"
_BATCH, _REDRAWS = 1000, 200


class Evaluation:
    """(rounds done, state) → the figures of that round, where they are due in it: in `rounds`."""

    def __init__(self, run: Run, group: Group | None = None):
        self._run, self._group = run, group or run.group
        parts, o, config = run.parts, run.plan, run.plan.config
        measures, loss = o.measures, o.loss
        self._sample = scored = scored_nodes(config)
        self.rounds = evaluation_rounds(config.rounds, config.evaluation.every)
        self._score = Evaluator(
            o.module, o.stack, loss, *parts.test, task=o.task, measures=measures, group=self._group,
            truth=parts.dataset.truth,
            scored=None if scored is None else [i - parts.nodes.start for i in scored if i in parts.nodes],
        )  # fmt: skip
        self._unreleased = o.method.why_metrics_not_private()
        self._not_private = self._unreleased or (f"the hold-out is {NOT_PUBLIC}" if parts.private_hold_out else None)
        # Draws that were spent and lost count from the start: ε is never stated lower than it is.
        before, per_round = o.privacy.draws_before if run.done else 0, o.privacy.draws_per_round
        unused = -(-(run.reader.draws - before - run.done * per_round) // per_round)
        self._unused = max(0, unused)  # a site that skipped rounds has drawn less
        # With thousands of nodes, the whole hold-out would outlast the training.
        self._most_rows = max(1, MOST_SCORED // (config.nodes if scored is None else len(scored)))
        self._few_rows = min(config.evaluation.rows or 2000, self._most_rows)

    def __call__(self, done: int, state: Any) -> dict[str, Any]:
        run, group, parts, o = self._run, self._group, self._run.parts, self._run.plan
        claimed, proof = self._spent[done]
        last = done == o.config.rounds
        models = o.method.scored(o.algorithm, state, run.reader, len(group.nodes))
        public = self._score(models, self._most_rows if last else self._few_rows)
        private: dict[str, Any] = {}
        if self._not_private is not None:
            public, private = self._split(public)
        if parts.judged is not None and last:
            released = o.method.released(o.algorithm, state, len(group.nodes)).detach()
            public |= private_figures(run, group, released)
        name = "truth_rmse" if o.config.evaluation.metric == "truth" else key_of(o.measures[0])
        for figures in (public, private):
            if name not in DEFAULT_METRICS and f"{name}_mean" in figures:
                figures["metric"] = name
        row = {
            "round": done,
            **public,
            **({SCORED: self._sample} if self._sample is not None else {}),
            **({"hold_out": NOT_PUBLIC} if parts.private_hold_out else {}),
            "epsilon_claimed": claimed,
            "epsilon_proven": proof,
        }
        if hasattr(state, "w"):
            row["push_sum_mass"] = math.fsum(group.join(state.w.double().flatten().tolist(), per_node=True))
        if private:
            row["not_private"] = {"because": self._not_private, **private}
        if run.reader.last_diagnostics is not None:
            norm, clipped, lot_norm = run.reader.last_diagnostics
            diagnosed = {
                "gradient_norm": norm.tolist(),
                "clipped_share": clipped.tolist(),
                "lot_gradient_norm": lot_norm.tolist(),
            }
            row["not_private"] = {**row.get("not_private", {}), **diagnosed}
        return row

    @cached_property
    def _spent(self) -> dict[int, tuple[float | None, float | None]]:
        """Rounds done → (claimed ε, proven ε); not computed before the first evaluation is due."""
        spent = self._run.plan.privacy.epsilon_after([done + self._unused for done in self.rounds])
        return dict(zip(self.rounds, spent, strict=True))

    def _split(self, figures: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what everyone could compute, what not): an ε next to a figure must cover it.

        All that is released may be judged on public records. Of models that never leave their nodes every figure is
        private; on a private hold-out every figure but how far the models are apart.
        """
        open_keys = () if self._unreleased else ("consensus_distance", "truth_rmse_")
        public = {key: value for key, value in figures.items() if key.startswith(open_keys)}
        return public, {key: value for key, value in figures.items() if key not in public}


def scored_nodes(config: RunConfig) -> list[int] | None:
    """The nodes whose models are judged, by the seed and their number alone; None: all of them."""
    count = config.evaluation.nodes or MOST_NODES
    if count >= config.nodes:
        return None
    rng = np.random.default_rng([_SAMPLE, config.nodes, config.seed])
    return sorted(rng.choice(config.nodes, count, replace=False).tolist())


def evaluation_rounds(rounds: int, every: int | None) -> list[int]:
    every = every or max(1, -(-rounds // 10))
    return sorted({*range(every, rounds + 1, every), rounds})


def cells(o: Plan) -> list[Cells]:
    """Of every measure, in their order."""
    return [cells_of(measure, o.task, o.config.evaluation.bound) for measure in o.measures]


def private_figures(run: Run, group: Group, points: Tensor) -> dict[str, Any]:
    """Of the final models (m, d); without figures where a stop has lost them, and then it says why."""
    o, path = run.plan, run.directory.path / FILE
    digests = group.join(model_digests(points), per_node=True)
    if stored_everywhere(path, group):
        totals, of = _read(path)
        if of != digests:
            return {"not_measured_because": OTHERS}
    else:
        if any(group.join([run.book.next_draw > o.privacy.draws])) and not o.seeded:
            return {"not_measured_because": LOST}
        totals = _released(run, group, points)
        if group.first_here:
            run.directory.write_json(FILE, {"models": digests, "totals": totals})
    return figures_of(o, totals)


def _released(run: Run, group: Group, points: Tensor) -> list[list[float]]:
    parts, o, judged = run.parts, run.plan, run.parts.judged
    assert judged is not None
    measured = cells(o)
    released = private_judgement(
        lambda i: judged_rows(o, measured, points[i], *judged.of(i)),
        judged,
        parts.nodes,
        event=o.privacy.after[0],
        stream=parts.stream(),
        book=run.book,
    )
    totals: list[list[float]] = group.join(released.tolist(), per_node=True)
    return totals


@torch.no_grad()
def judged_rows(o: Plan, measured: Sequence[Cells], point: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(J, k) what each record adds. Every record goes through a trace of the network by itself: none sees another."""
    values = {name: view[0] for name, view in o.stack.views(point[None]).items()}
    graph = one_output(o.module, x.shape[1:], x.dtype)
    alone = vmap(graph.forward, in_dims=(None, 0))  # called itself, it prints where a record fails
    parts = []
    for start in range(0, len(x), _BATCH):
        some = x[start : start + _BATCH]
        outputs = outputs_or_nan(lambda rows: alone(values, rows), some, shape_of(graph))
        predictions = Predictions(o.task, outputs, y[start : start + _BATCH])
        rows = np.concatenate([one.rows(predictions) for one in measured], 1)
        parts.append(torch.from_numpy(rows / math.sqrt(len(measured))))  # all measures together are one row
    return torch.cat(parts) if parts else torch.zeros(0, sum(one.size for one in measured), dtype=torch.float64)


def figures_of(o: Plan, totals: Sequence[Sequence[float]]) -> dict[str, Any]:
    """From what was released alone: `_mean` is of all nodes' sums together, and `_noise` how far noise moves it."""
    by_node = np.asarray(totals, dtype=np.float64)
    sigma = o.privacy.after[0].release.noise_multiplier * math.sqrt(len(by_node))
    redrawn = np.random.default_rng(0).standard_normal((_REDRAWS, by_node.shape[1])) * sigma
    figures: dict[str, Any] = {"measured_on": ON_PRIVATE}
    start = 0
    for measure, one in zip(o.measures, cells(o), strict=True):
        mine = slice(start, start + one.size)
        start += one.size
        together = by_node[:, mine].sum(0)
        each = [one.figure(own) for own in by_node[:, mine]]
        known = [value for value in each if not math.isnan(value)]
        mean, name = one.figure(together), key_of(measure)
        if math.isnan(mean) or not known:
            continue  # the noise has left nothing to say
        again = [one.figure(together + noise) for noise in redrawn[:, mine]]
        figures |= {
            f"{name}_mean": mean,
            f"{name}_min": min(known),
            f"{name}_max": max(known),
            f"{name}_by_node": [None if math.isnan(value) else value for value in each],
            f"{name}_noise": float(np.nanstd(again)),
        }
    return figures


def _read(path: Path) -> tuple[list[list[float]], list[str]]:
    try:
        released = json.loads(read_bytes(path))
        return [[float(value) for value in own] for own in released["totals"]], list(released["models"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; put the run's own back.") from None
