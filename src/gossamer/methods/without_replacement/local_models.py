"""The other reader of training records: private local models, of which nothing leaves but noised writes.

Without-replacement SGD with a shared public model (its Algorithm 1). Every hosted node keeps one linear classifier per
class that its own lots move without noise; `write` is the only way out. It releases the average of public and local
model with a noised gradient step, and by Lemma 4 the distance one record can make in it is that of a single step,
however many lots went into the local model since its last write: each step is non-expansive. So a record is protected
once per class and pass, and the classes of a lot are one joint release: one event per node and turn that writes.

Local models and lots are in double precision, and a write is rounded to whole numbers as every release is. What double
precision loses in all steps together is bounded by `rounding_of_steps`, and a write pays for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Event, Release
from gossamer.kernels.noise import RATIO, Stream
from gossamer.kernels.rounding import EXCESS
from gossamer.mechanism.noise.base import COUNT, NOISE, Mechanism, Participation
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.reader import Book, Records
from gossamer.mechanism.sampling import Sampler
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.controllers import Observation

LOSS_RANGE = 2.0  # losses are cut off here before they are released
TENS = 10.0  # controllers see weights in tens, so that a loss below 1 is not drowned by weights of length 20


@dataclass(frozen=True)
class Blind:
    """A view of nothing, so that the choice does not depend on data. Other views override it."""

    loss_share: float = 0.0  # of a write's budget, spent on what they see
    raw: ClassVar[bool] = False  # does the choice follow raw values, so that it is a release of its own?

    def state(self, models: LocalModels) -> Tensor:
        return models.written.new_zeros(*models.local.shape[:2], 1)

    def reward(self, models: LocalModels) -> Tensor:
        return models.written.new_zeros(models.local.shape[:2])


@dataclass(frozen=True)
class RawView(Blind):
    """As in the paper: the un-noised local model and its loss on the lot. No proof survives it."""

    raw: ClassVar[bool] = True

    def state(self, models: LocalModels) -> Tensor:
        return torch.cat([models.local.float() / TENS, models.lot_loss()[..., None]], -1)

    def reward(self, models: LocalModels) -> Tensor:
        return -models.lot_loss()


@dataclass(frozen=True)
class ReleasedView(Blind):
    """A view of what is public: the model this node last wrote, how long ago, each class's last noised loss."""

    loss_share: float = 0.1

    def state(self, models: LocalModels) -> Tensor:
        known = models.released_loss.expand(len(models.local), -1)
        waited = models.waited / models.rule.rounds
        return torch.cat([models.written / TENS, known[..., None], waited[..., None]], -1)

    def reward(self, models: LocalModels) -> Tensor:
        return -models.released_loss.expand(len(models.local), -1)


class LocalModels:
    """The hosted nodes' local models (m, C, d), and the turns that move and publish them.

    `record_bound` is the largest norm a record may have: longer ones are scaled down to it, each by itself, and the
    gradient of a logistic loss is no longer than its record. The regulariser does not depend on records, so it is no
    part of the sensitivity. `lots` are the public lot sizes b_i that sums are divided by.
    """

    def __init__(
        self,
        *,
        rule: WithoutReplacement,
        view: Blind,
        records: Records,
        sampler: Sampler,
        classes: int,
        record_bound: float,
        noise: Mechanism,
        stream: Stream,
        book: Book,
        nodes: Sequence[int],
        lots: Sequence[float],
        allowance: Sequence[int],
        adjacency: str,
        of: int,
    ):
        self._records = Records(_within(records.x.flatten(1), record_bound), records.y, records.sizes)
        self._sampler, self._noise, self._stream, self._book = sampler, noise, stream, book
        self._bound, self.rule, self._view, self._adjacency = record_bound, rule, view, adjacency
        self.nodes, self._of = list(nodes), of
        self._lots = torch.tensor(list(lots), dtype=torch.float64)
        self._allowance = torch.tensor(list(allowance))
        m, d = len(self.nodes), self._records.x.shape[1]
        self.local = torch.zeros(m, classes, d, dtype=torch.float64)
        least = min(float(lr) for lr in map(rule.lr, range(rule.rounds)))
        lost = rounding_of_steps(rule, record_bound, max(lots), d)
        self._excess = max(EXCESS, lost / (least * record_bound / max(lots)))
        self.written = torch.zeros(m, classes, d)  # what each node last made public
        self.released_loss = torch.full((classes,), math.log(2.0))  # of the model from zero
        self.waited = torch.zeros(m, classes)  # turns since the last write
        self._window = torch.zeros(m, classes, dtype=torch.float64)  # largest η since then, 0 where empty
        self._stale = torch.zeros(m, classes, dtype=torch.bool)  # the window reaches into an earlier pass
        self._passes = sampler.passes(0)
        self._rates = list(sampler.rates)
        self._lot: tuple[Tensor, Tensor] | None = None
        self._turn, self._lr = -1, 0.0
        self._divisors = self._lots.tolist()
        self._left = torch.zeros(m, classes, d)  # the public model as each node left it
        self._scales = torch.zeros(m, classes, dtype=torch.float64)  # of the noise on what a turn writes
        self._loss_scales = torch.zeros(m, dtype=torch.float64)
        self.draws = 0
        self.last_diagnostics = None

    def open(self, t: int, lr: float) -> Observation:
        """Begin turn t: every node's next lot, and what its controller may see before it chooses."""
        reward = self._view.reward(self) if self._lot is not None else None
        self._turn, self._lr, self.draws = t, lr, t + 1
        lot = self._sampler.draw(self._stream, self.nodes, self._records.sizes, t)
        x, y, _, _ = self._records.take(lot)
        signs = 2.0 * torch.nn.functional.one_hot(y, self.local.shape[1]).to(x) - 1
        self._lot = x.double(), signs.double() * lot.mask[..., None]
        before, self._passes = self._passes, self._sampler.passes(t)
        self._stale |= self._changes(before, self._passes)[:, None] & (self._window > 0)
        if self._view.raw:
            raw = [raw_decision(math.inf, self._participation(i)) for i in range(len(self.nodes))]
            own = zip(self.nodes, raw, strict=True)
            self._book.write([((node,), Event(draw=t, release=release)) for node, release in own])
        hosted = range(self.nodes[0], self.nodes[-1] + 1)
        return Observation(self._view.state(self), reward, self._closing(), hosted, self._of)

    def may_write(self) -> Tensor:
        """(m,) whose budget pays for this turn."""
        return self._allowance > self._turn

    def prepare(self, chosen: Tensor) -> None:
        """Before the writes of the turn: their events, and how much noise each gets.

        Only the chain of writes is one after the other: all that can be done beside it is done here and in
        `step_locally`.
        """
        if bool((self._stale & chosen).any()):
            raise ValueError("a write over lots of two passes holds a record twice: a pass must end with a write")
        # The longest step since each class's last write, this one included: Lemma 4's maximum. Times B / b it is what
        # adding or removing a record can move in one class.
        each = (1 + self._excess) * self._window.clamp_min(self._lr) * self._bound / self._lots[:, None]
        joint = math.sqrt(each.shape[1]) * torch.where(chosen, each, 0.0).amax(1)
        multiplier = self._noise.levels(self._turn)
        releases = []
        for i in chosen.any(1).nonzero()[:, 0].tolist():
            release = self._noise.release(
                i, float(multiplier[i]), float(joint[i]), each.shape[1], self._participation(i), enforced=True
            )
            releases.append(((self.nodes[i],), Event(draw=self._turn, release=release)))
        self._book.write(releases)
        if not self._noise.adds or not bool(chosen.any()):
            return
        # Of a write at multiplier z the model takes 1 − share, the released loss the rest: together one release at z.
        whole = multiplier * math.sqrt(each.shape[1])
        self._scales = whole[:, None] / math.sqrt(1 - self._view.loss_share) * each
        if self._view.loss_share:
            self._loss_scales = whole / math.sqrt(self._view.loss_share) * LOSS_RANGE / 2 / self._lots
            self._loss_scales *= 1 + self._excess

    def _noised(self, purpose: int, i: int, rows: Tensor, scales: Tensor) -> Tensor:
        """Node i's release of rows (C, k), one for each class, with noise of these deviations."""
        if self._noise.adds:
            classes = len(rows)
            addresses = self.nodes[i] * classes + np.arange(classes)
            rows = rows.clone()
            self._stream.whole_rows(purpose, addresses, self._turn, rows, scales / RATIO)
        return rows

    def write(self, i: int, public: Tensor, chosen: Tensor) -> Tensor:
        """The only release: hosted node i writes its chosen classes (C,) of the public model (C, d).

            w_G ← Π((w_G + w_L)/2 − η ∇f(w_G) + noise),   w_L ← w_G        (paper eqs. (5), (6))

        `average` off: w_G ← Π(w_G − η ∇f(w_G) + noise).
        """
        x, signs = self._opened()
        x, signs, public = x[i], signs[i], public.double()
        margins = signs * (x @ public.mT)
        slope = self.rule.regularisation * public - (torch.sigmoid(-margins) * signs).mT @ x / self._divisors[i]
        start = (public + self.local[i]) / 2 if self.rule.average else public
        new = self._project(self._noised(NOISE, i, start - self._lr * slope, self._scales[i]))
        if self._view.loss_share:
            self._release_loss(i, margins, signs, chosen)
        self._left[i] = torch.where(chosen[:, None], new, public).float()
        return self._left[i].clone()

    def step_locally(self, chosen: Tensor) -> None:
        """After the writes: w_L ← w_G where a class was written, else w_L ← Π(w_L − 2η ∇f(w_L)). Releases nothing."""
        local = self.local
        if self._sampler.disjoint and not bool(chosen.all()):
            x, signs = self._opened()
            local = self._project(local - 2 * self._lr * self._slope(local, x, signs))
        elif bool((~chosen & self.may_write()[:, None]).any()):
            raise ValueError("lots that may overlap leave a record's influence on a local model unbounded")
        self.local = torch.where(chosen[..., None], self._left, local)
        self.written = torch.where(chosen[..., None], self._left, self.written)
        self._window = torch.where(chosen, 0.0, self._window.clamp_min(self._lr))
        self._stale &= ~chosen
        self.waited = torch.where(chosen, 0.0, self.waited + 1)

    def draw_ahead(self, dimension: int) -> None:
        """A turn's noise is drawn at once in `prepare`: there is nothing to do while messages travel."""

    def lot_loss(self) -> Tensor:
        """(m, C) the lot's mean loss at the local models: raw, for eyes on the node only."""
        return (self._losses(self.local, *self._opened()).sum(1) / self._lots[:, None]).float()

    def models(self) -> Tensor:
        """(m, C·d) the local models with their un-noised tail: they stay on their nodes."""
        return self.local.flatten(1).float()

    def state(self) -> dict[str, Any]:
        """For a checkpoint, which may leave the node: public values only."""
        return {"draws": torch.tensor(self.draws), "released_loss": self.released_loss}

    def _release_loss(self, i: int, margins: Tensor, signs: Tensor, chosen: Tensor) -> None:
        """Mean loss of the fetched model on the lot, each record's cut to [0, 2] and counted from the middle."""
        losses = torch.nn.functional.softplus(-margins).clamp_max(LOSS_RANGE) - LOSS_RANGE / 2
        mean = (losses * (signs != 0)).sum(0) / self._divisors[i] + LOSS_RANGE / 2
        scales = self._loss_scales[i].expand(len(mean))
        noised = self._noised(COUNT, i, mean[:, None], scales)[:, 0].clamp(0, LOSS_RANGE).float()
        self.released_loss = torch.where(chosen, noised, self.released_loss)

    def _closing(self) -> Tensor:
        return self._changes(self._sampler.passes(self._turn), self._sampler.passes(self._turn + 1))

    def _changes(self, before: list[int] | None, after: list[int] | None) -> Tensor:
        """(m,) whose pass is another one."""
        if before is None or after is None:
            return torch.zeros(len(self.nodes), dtype=torch.bool)
        return torch.tensor(before) != torch.tensor(after)

    def _opened(self) -> tuple[Tensor, Tensor]:
        if self._lot is None:
            raise ValueError("no turn is open")
        return self._lot

    def _slope(self, points: Tensor, x: Tensor, signs: Tensor) -> Tensor:
        """∇ of the mean logistic loss over the lot plus λ/2 ‖w‖², (m, C, d); padding has sign 0 and no weight."""
        pull = torch.sigmoid(-signs * (x @ points.mT)) * signs
        return self.rule.regularisation * points - (pull.mT @ x) / self._lots.to(x)[:, None, None]

    @staticmethod
    def _losses(points: Tensor, x: Tensor, signs: Tensor) -> Tensor:
        """(m, B, C) logistic losses, 0 where padded."""
        return torch.nn.functional.softplus(-signs * (x @ points.mT)) * (signs != 0)

    def _project(self, points: Tensor) -> Tensor:
        """Π: each class's weights back into the ball of radius R; non-expansive, and free after noise."""
        if self.rule.radius is None:
            return points
        lengths = points.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        inside: Tensor = points * (self.rule.radius / lengths).clamp_max(1.0)
        return inside

    def _participation(self, i: int) -> Participation:
        number = None if self._passes is None else self._passes[i]
        lots = self._sampler.lot_numbers(self._turn)
        lot = None if lots is None else lots[i]
        return Participation(self._sampler.kind, self._rates[i], self._adjacency, number, lot)


def rounding_of_steps(rule: WithoutReplacement, record_bound: float, lot: float, features: int) -> float:
    """Bound how far apart rounding can bring two local models, and their writes, in all of a run's steps.

    A step without rounding is non-expansive. With it, u = 2⁻⁵³, a record's margin is off by p u B R for weights of norm
    R, its slope by a quarter of that and 8 u, the sum of n gradients of norm B by n u of theirs, and the rest of the
    step by 8 u R; two models by twice as much. A lot has fewer than 2 b + 400 records but with a probability below
    e⁻¹⁰⁰.
    """
    steps = [2 * float(rule.lr(t)) for t in range(rule.rounds)]
    most, unit = 2 * lot + 400, 2.0**-53
    reach = most / lot * record_bound * sum(steps) if rule.radius is None else rule.radius
    of_sum = most / lot * record_bound * (features * record_bound * reach / 4 + most + 8)
    return 2 * unit * (max(steps) * of_sum + 8 * reach) * rule.rounds


def raw_decision(sensitivity: float, part: Participation) -> Release:
    """Everyone sees a choice that was made on raw values."""
    return releases.RawDecision(sensitivity=sensitivity, **vars(part))


@dataclass(frozen=True, kw_only=True)
class RawDecisions(Gaussian):
    """Writes with noise whose timing is decided on raw losses: planned as what they are, releases without a proof."""

    def release(self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float) -> Release:
        return raw_decision(sensitivity, part)


def _within(x: Tensor, bound: float) -> Tensor:
    """Every record by itself into the ball of that radius: what the sensitivity rests on is enforced here."""
    norms = x.double().norm(dim=1, keepdim=True)
    shrink = (bound * (1 - 2.0**-22) / norms.clamp_min(1e-300)).clamp_max(1.0)
    return torch.where(torch.isfinite(norms), x * shrink.to(x), torch.zeros_like(x))
