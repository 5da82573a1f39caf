"""Figures on a private hold-out: the kept-out records of every node judge its final model, once, with noise.

The event is on file before a record is looked at, and what was released is kept: a run that goes on reads it again, for
a second release would be paid for a second time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from gossamer.errors import UserError
from gossamer.kernels.finite import outputs_or_nan
from gossamer.kernels.oracle import one_output, shape_of
from gossamer.mechanism.judged import private_judgement
from gossamer.models.measures import Cells, Predictions, cells_of, key_of
from gossamer.results.files import read_bytes
from gossamer.results.released import model_digests
from gossamer.runtime.group import Group
from gossamer.training.assemble import Parts
from gossamer.training.begin import Run
from gossamer.training.plan import Plan

FILE = "evaluation.json"
ON_PRIVATE = "private records, kept out of training, with noise that is paid for"
LOST = "a stop came between their release and their file"
OTHERS = "they were released before a stop, of other models than these"
_BATCH, _REDRAWS = 1000, 200


def cells(o: Plan) -> list[Cells]:
    """Of every measure, in their order."""
    return [cells_of(measure, o.task, o.config.evaluation.bound) for measure in o.measures]


def private_figures(parts: Parts, run: Run, group: Group, points: Tensor) -> dict[str, Any]:
    """Of the final models (m, d); without figures where a stop has lost them, and then it says why."""
    o, path = parts.plan, run.directory.path / FILE
    digests = group.join(model_digests(points), per_node=True)
    kept = group.join([path.exists()])
    if any(kept):
        if not path.exists():
            raise UserError(
                f"{path} is gone, and another process of the run has its own; copy it from there."
            )
        totals, of = _read(path)
        if of != digests:
            return {"not_measured_because": OTHERS}
    else:
        on_file = group.join([run.book.next_draw > o.privacy.draws])
        if any(on_file) and not o.seeded:
            return {"not_measured_because": LOST}
        totals = _released(parts, run, group, points)
        if group.first_here:
            run.directory.write_json(FILE, {"models": digests, "totals": totals})
    return figures_of(o, totals)


def _released(parts: Parts, run: Run, group: Group, points: Tensor) -> list[list[float]]:
    o, judged = parts.plan, parts.judged
    assert judged is not None
    made = cells(o)
    released = private_judgement(
        lambda i: judged_rows(o, made, points[i], *judged.of(i)),
        judged,
        parts.nodes,
        event=o.privacy.after[0],
        stream=parts.stream(),
        book=run.book,
    )
    totals: list[list[float]] = group.join(released.tolist(), per_node=True)
    return totals


@torch.no_grad()
def judged_rows(o: Plan, made: Sequence[Cells], point: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(J, k) what each record adds. Every record goes through a trace of the network by itself: none sees another."""
    values = {name: view[0] for name, view in o.stack.views(point[None]).items()}
    graph = one_output(o.module, x.shape[1:], x.dtype)
    alone = vmap(graph, in_dims=(None, 0))
    parts = []
    for start in range(0, len(x), _BATCH):
        some = x[start : start + _BATCH]
        outputs = outputs_or_nan(lambda rows: alone(values, rows), some, shape_of(graph))
        found = Predictions(o.task, outputs, y[start : start + _BATCH])
        rows = np.concatenate([one.rows(found) for one in made], 1)
        parts.append(torch.from_numpy(rows / math.sqrt(len(made))))  # all measures together are one row
    return torch.cat(parts) if parts else torch.zeros(0, sum(one.size for one in made), dtype=torch.float64)


def figures_of(o: Plan, totals: Sequence[Sequence[float]]) -> dict[str, Any]:
    """From what was released alone: `_mean` is of all nodes' sums together, and `_noise` how far noise moves it."""
    by_node = np.asarray(totals, dtype=np.float64)
    sigma = o.privacy.after[0].release.noise_multiplier * math.sqrt(len(by_node))
    redrawn = np.random.default_rng(0).standard_normal((_REDRAWS, by_node.shape[1])) * sigma
    found: dict[str, Any] = {"measured_on": ON_PRIVATE}
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
        found |= {
            f"{name}_mean": mean,
            f"{name}_min": min(known),
            f"{name}_max": max(known),
            f"{name}_by_node": [None if math.isnan(value) else value for value in each],
            f"{name}_noise": float(np.nanstd(again)),
        }
    return found


def _read(path: Any) -> tuple[list[list[float]], list[str]]:
    try:
        found = json.loads(read_bytes(path))
        return [[float(value) for value in own] for own in found["totals"]], list(found["models"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; put the run's own back.") from None
