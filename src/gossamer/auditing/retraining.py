"""One canary among real records, in or out of many trainings: the attack by training again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.algorithms.base import Grad
from gossamer.auditing import canaries
from gossamer.auditing.attacker import Attacker
from gossamer.auditing.procedures import Found, expected_samples, refuse_unequal_sizes, stream_of
from gossamer.auditing.recovery import Draw, Sign, Step
from gossamer.auditing.scores import MessageReader
from gossamer.auditing.stacked import MakeGradient, Tally, gradient_of, repeat, train
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.training.assemble import Parts


class Retraining:
    """One canary among real records, in or out of many trainings; the victim is the node where it is least odd."""

    independent = True
    attacked = "the whole training, with the run's data and model"
    looks = False
    at_once = 100
    runs = 1000

    def __init__(
        self,
        parts: Parts,
        kind: str,
        view: Observer,
        make_gradient: MakeGradient = gradient_of,
        *,
        records: int = 1,
    ):
        """`records` of the canary: a person who has so many, all alike."""
        if parts.plan.classes is None:
            raise UserError(f"--canary {kind} needs classes to label it; use --canary dirac.")
        if view.members:
            raise UserError(
                f"--canary {kind} is scored by --observer final or all; {view.name} needs --canary dirac."
            )
        if parts.noise_on_messages and view.sees_all:
            raise UserError(
                f"--canary {kind} with --observer {view.name} follows the points, which noise on the messages "
                "(privacy.noise.on = 'iterate') hides; use --observer final or --canary dirac."
            )
        if parts.plan.privacy.noise.cancels and view.sees_all:
            raise UserError(
                f"--canary {kind} with --observer {view.name} scores one node's own messages, which noise that nodes "
                "share hides; use --observer final or --canary dirac."
            )
        self._parts, self._view, self._make = parts, view, make_gradient
        self._replace_one = refuse_unequal_sizes(parts.plan.config)
        self._canary = canaries.CANARIES[kind](parts.dataset)
        self.victim = canaries.home_of(self._canary, parts.records.y, parts.records.sizes)
        self.description = (
            f"{self._canary.description}, in or out of each run by a coin, on node {self.victim}"
        )
        config = parts.plan.config
        self._records = records
        self.notes: tuple[str, ...] = tuple(canaries.Whose.of(config, records).words(config))

    def batch(self, number: int, runs: int) -> Found:
        """A fair coin for every run, from the secret stream: with the canary or without."""
        o = self._parts.plan
        stream = stream_of(o.config, number)
        present = canaries.flip(stream, 1, runs)[0]
        records = canaries.with_and_without(
            self._parts.records,
            self._canary,
            self.victim,
            present,
            replace_one=self._replace_one,
            records=self._records,
        )
        stacked = repeat(self._parts, runs, records)
        rows = slice(self.victim * runs, (self.victim + 1) * runs)
        if self._view.sees_all:
            along = AlongTheCanary(stacked, self._canary, rows)

            def watched(parts: Parts, book: Tally, stream: Stream) -> Grad:
                return along.watch(self._make(parts, book, stream))

            everyone = MessageReader(o.algorithm, along, sees_models=self._view.sees_models)
            trained = train(stacked, stream, [everyone], make_gradient=watched)
            scores = along.scores.numpy()
        else:
            trained = train(stacked, stream, make_gradient=self._make)
            models = o.algorithm.model(trained.state)[rows]
            scores = -losses(stacked, models, self._canary).double().numpy()
        found = np.nan_to_num(scores, nan=-1e30, posinf=1e30, neginf=-1e30)  # a diverged run scores lowest
        return Found(found, present, np.arange(runs), runs, trained.seconds, expected_samples(stacked))


class AlongTheCanary:
    """The noised gradient's component along the canary's own gradient, at the points everyone knows."""

    def __init__(self, stacked: Parts, canary: canaries.Canary, rows: slice):
        o = stacked.plan
        self._vector = o.method.vector(o.algorithm, o.module, o.classes)
        self._canary, self._rows = canary, rows
        self._attacker, self._clip = Attacker(stacked, 1.0, False), stacked.clip()
        self._points: dict[int, Tensor] = {}
        self._drawn = 0
        self._count = rows.stop - rows.start
        self.scores: Any = torch.zeros(self._count, dtype=torch.float64)

    def watch(self, grad: Grad) -> Grad:
        """Everyone can follow the points; here they are noted where they pass by."""

        def noting(points: Tensor) -> Tensor:
            self._points[self._drawn] = points[self._rows].clone()
            self._drawn += 1
            value: Tensor = grad(points)
            return value

        return noting

    def __call__(self, found: Draw | Sign | Step) -> None:
        if not isinstance(found, Draw):
            return
        k = found.draws[0]
        points = self._points.pop(k)
        step = self._clip.at(k, self._count)
        x = self._canary.x.expand(self._count, 1, *self._canary.x.shape)
        y = self._canary.y.expand(self._count, 1)
        everyone = torch.ones(self._count, 1, dtype=torch.bool)
        direction, _ = replace(step, unit=None).sums(self._vector, points, x, y, everyone)
        spread = self._attacker.linear_spread(k)[self._rows].double()[:, 0]
        value = found.value if found.known is None else torch.where(found.known, found.value, 0.0)
        along = (direction * value[self._rows]).sum(1).double()
        self.scores += along / spread.square().clamp_min(1e-30)


def losses(stacked: Parts, models: Tensor, canary: canaries.Canary) -> Tensor:
    o, loss = stacked.plan, stacked.plan.loss

    def one(parameters: dict[str, Tensor]) -> Tensor:
        outputs = torch.func.functional_call(o.module, parameters, (canary.x[None],))
        value: Tensor = loss(outputs, canary.y[None])[0]
        return value

    return torch.cat([one({k: v[0] for k, v in o.stack.views(m[None]).items()})[None] for m in models])
