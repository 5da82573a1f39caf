"""The other reader of training records: private local models, of which nothing leaves but noised writes.

Without-replacement SGD with a shared public model (its Algorithm 1). Every hosted node keeps one linear classifier per
class that its own lots move without noise; `write` is the only way out. It releases the average of public and local
model with a noised gradient step, and by Lemma 4 the distance one record can make in it is that of a single step,
however many lots went into the local model since its last write: each step is non-expansive. So a record is protected
once per class and pass, and the classes of a lot are one joint release: one event per node and turn that writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gossamer.accounting.events import Event
from gossamer.kernels.noise import Stream
from gossamer.private.arithmetic import NOISE, ROUND_UP
from gossamer.private.gradient import COUNT_NOISE, Book, Noise, Records
from gossamer.private.sampling import OnePassSampler, Sampler, pass_parts

LOSS_RANGE = 2.0  # losses are cut off here before they are released


class Seen(NamedTuple):
    """What a controller may look at, for every hosted node and class."""

    state: Tensor  # (m, C, k)
    reward: Tensor | None  # (m, C) of the last choice; None before the first
    closing: Tensor  # (m,) the turn ends a pass and another follows: what is written now is written once only


class View(Protocol):
    """Which values reach the controllers; `loss_share` of a write's budget is spent on them."""

    mechanism: str | None  # how the choice itself must be logged
    loss_share: float

    def state(self, models: LocalModels) -> Tensor: ...

    def reward(self, models: LocalModels) -> Tensor: ...


@dataclass(frozen=True)
class Blind:
    """Nothing: the choice does not depend on data."""

    mechanism: None = None
    loss_share: float = 0.0

    def state(self, models: LocalModels) -> Tensor:
        return models.local.new_zeros(*models.local.shape[:2], 1)

    def reward(self, models: LocalModels) -> Tensor:
        return models.local.new_zeros(models.local.shape[:2])


@dataclass(frozen=True)
class RawView:
    """As in the paper: the un-noised local model and its loss on the lot. No proof survives it."""

    mechanism: str = "raw-decision"
    loss_share: float = 0.0

    def state(self, models: LocalModels) -> Tensor:
        return torch.cat([models.local, models.lot_loss()[..., None]], -1)

    def reward(self, models: LocalModels) -> Tensor:
        return -models.lot_loss()


@dataclass(frozen=True)
class ReleasedView:
    """What everyone knows: the model this node last wrote, how long ago, and the last noised loss of each class."""

    loss_share: float = 0.1
    mechanism: None = None

    def state(self, models: LocalModels) -> Tensor:
        known = models.released_loss.expand(len(models.local), -1)
        waited = models.waited / models.turns
        return torch.cat([models.written, known[..., None], waited[..., None]], -1)

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
        records: Records,
        sampler: Sampler,
        classes: int,
        record_bound: float,
        regularisation: float,
        radius: float | None,
        average: bool,
        view: View,
        noise: Noise,
        stream: Stream,
        book: Book,
        nodes: Sequence[int],
        lots: Sequence[float],
        allowance: Sequence[int],
        adjacency: str,
        turns: int,
    ):
        self._records = Records(_within(records.x.flatten(1), record_bound), records.y, records.sizes)
        self._sampler, self._noise, self._stream, self._book = sampler, noise, stream, book
        self._bound, self._decay, self._radius, self._average = (
            record_bound,
            regularisation,
            radius,
            average,
        )
        self._view, self._adjacency, self.nodes = view, adjacency, list(nodes)
        self._lots = torch.tensor(list(lots), dtype=torch.float64)
        self._allowance = torch.tensor(list(allowance))
        m, d = len(self.nodes), self._records.x.shape[1]
        self.turns = turns
        self.local = torch.zeros(m, classes, d)
        self.written = torch.zeros(m, classes, d)  # what each node last made public
        self.released_loss = torch.full((classes,), math.log(2.0))  # of the model from zero
        self.waited = torch.zeros(m, classes)  # turns since the last write
        self._window = torch.zeros(m, classes, dtype=torch.float64)  # largest η since then, 0 where empty
        self._stale = torch.zeros(m, classes, dtype=torch.bool)  # the window reaches into an earlier pass
        self._parts = pass_parts(sampler, 0)
        self._rates = list(sampler.rates)
        self._lot: tuple[Tensor, Tensor] | None = None
        self._turn, self._lr = -1, 0.0
        self._noises = torch.zeros(m, classes, d)
        self._loss_noises = torch.zeros(m, classes)
        self.draws = 0
        self.last_diagnostics = None

    def open(self, t: int, lr: float) -> Seen:
        """Begin turn t: every node's next lot, and what its controller may see before it chooses."""
        reward = self._view.reward(self) if self._lot is not None else None
        self._turn, self._lr, self.draws = t, lr, t + 1
        lot = self._sampler.draw(self._stream, self.nodes, self._records.sizes, t)
        x, y = self._records.take(lot)
        signs = 2.0 * torch.nn.functional.one_hot(y, self.local.shape[1]).to(x) - 1
        self._lot = x, signs * lot.mask.to(x)[..., None]
        before, self._parts = self._parts, pass_parts(self._sampler, t)
        if before != self._parts:
            new_pass = torch.tensor([a != b for a, b in zip(before, self._parts, strict=True)])
            self._stale |= new_pass[:, None] & (self._window > 0)
        if self._view.mechanism is not None:
            for i, node in enumerate(self.nodes):
                self._book.append(node, self._event(i, self._view.mechanism, 0.0, math.inf))
        return Seen(self._view.state(self), reward, self._closing())

    def may_write(self) -> Tensor:
        """(m,) whose budget pays for this turn."""
        return self._allowance > self._turn

    def stay(self, chosen: Tensor) -> None:
        """w ← Π(w − 2η ∇f(w)) for the chosen (node, class) pairs; nothing is released."""
        if not bool(chosen.any()):
            return
        if self._sampler.kind != "one-pass":
            raise ValueError("a local model of lots that may overlap has no bounded influence of a record")
        x, signs = self._opened()
        moved = self._project(self.local - 2 * self._lr * self._slope(self.local, x, signs, self._lots))
        self.local = torch.where(chosen[..., None], moved, self.local)
        self._window = torch.where(chosen, self._window.clamp_min(self._lr), self._window)
        self.waited += chosen

    def draw_noise(self, chosen: Tensor) -> None:
        """The turn's noise of all nodes at once, standard normal; only the chain of writes is one after the other."""
        if self._noise.mechanism == "none" or not bool(chosen.any()):
            return
        ones = torch.full((len(self.nodes),), ROUND_UP, dtype=torch.float64)
        flat = self._noises.view(len(self.nodes), -1)
        self._stream.normal_rows(NOISE, self.nodes, self._turn, flat, ones)
        if self._view.loss_share:
            self._stream.normal_rows(COUNT_NOISE, self.nodes, self._turn, self._loss_noises, ones)

    def write(self, i: int, public: Tensor, chosen: Tensor) -> Tensor:
        """The only release: hosted node i writes its chosen classes (C,) of the public model (C, d).

            w_G ← Π((w_G + w_L)/2 − η ∇f(w_G) + noise),   w_L ← w_G        (paper eqs. (5), (6))

        `average` off: w_G ← Π(w_G − η ∇f(w_G) + noise).
        """
        if bool(self._stale[i][chosen].any()):
            raise ValueError("a write over lots of two passes holds a record twice: a pass must end with a write")
        all_x, all_signs = self._opened()
        x, signs, lot = all_x[i], all_signs[i], self._lots[i]
        start = (public + self.local[i]) / 2 if self._average else public
        new = start - self._lr * self._slope(public[None], x[None], signs[None], lot[None])[0]
        # The longest step since each class's last write, this one included: Lemma 4's maximum.
        longest = self._window[i].clamp_min(self._lr)
        each = longest * self._bound / lot  # what adding or removing a record can move in one class
        multiplier = float(self._noise.multiplier(self._turn)[i])
        joint = math.sqrt(len(each)) * float(each[chosen].max())
        noisy = self._noise.mechanism != "none"
        self._book.append(
            self.nodes[i], self._event(i, self._noise.mechanism, multiplier * joint if noisy else 0.0, joint)
        )
        if noisy:
            share = multiplier * math.sqrt(len(each)) / math.sqrt(1 - self._view.loss_share)
            new = new + (share * each).to(new)[:, None] * self._noises[i]
        if self._view.loss_share:
            self._release_loss(i, public, chosen, multiplier if noisy else 0.0)
        public = torch.where(chosen[:, None], self._project(new), public)
        self.local[i] = torch.where(chosen[:, None], public, self.local[i])
        self.written[i] = torch.where(chosen[:, None], public, self.written[i])
        self._window[i] = torch.where(chosen, 0.0, self._window[i])
        self.waited[i] = torch.where(chosen, 0.0, self.waited[i])
        return public

    def lot_loss(self) -> Tensor:
        """(m, C) the lot's mean loss at the local models: raw, for eyes on the node only."""
        return self._losses(self.local, *self._opened()).sum(1) / self._lots.to(self.local)[:, None]

    def models(self) -> Tensor:
        """(m, C·d) the local models with their un-noised tail: they stay on their nodes."""
        return self.local.flatten(1)

    def state(self) -> dict[str, Any]:
        """For a checkpoint, which may leave the node: public values only."""
        return {"draws": torch.tensor(self.draws), "released_loss": self.released_loss}

    def private_state(self) -> dict[str, Tensor]:
        """What a node must keep for itself to go on after a stop."""
        return {
            "local": self.local,
            "written": self.written,
            "waited": self.waited,
            "window": self._window,
            "draws": torch.tensor(self.draws),
        }

    def _release_loss(self, i: int, public: Tensor, chosen: Tensor, multiplier: float) -> None:
        """Mean loss of the fetched model on the lot, each record's cut to [0, 2] and counted from the middle."""
        x, signs = self._opened()
        losses = self._losses(public[None], x[i][None], signs[i][None])[0].clamp_max(LOSS_RANGE)
        inside = (signs[i] != 0).to(losses)
        mean = ((losses - LOSS_RANGE / 2) * inside).sum(0) / self._lots[i]
        each = LOSS_RANGE / 2 / float(self._lots[i])
        scale = multiplier * math.sqrt(len(mean)) / math.sqrt(self._view.loss_share) * each
        noised = (mean + scale * self._loss_noises[i] + LOSS_RANGE / 2).clamp(0, LOSS_RANGE)
        self.released_loss = torch.where(chosen, noised.to(self.released_loss), self.released_loss)

    def _closing(self) -> Tensor:
        """A window must not reach over two passes: a record would be in it twice."""
        if not isinstance(self._sampler, OnePassSampler) or self._turn + 1 >= self.turns:
            return torch.zeros(len(self.nodes), dtype=torch.bool)
        now, then = self._sampler.passes(self._turn), self._sampler.passes(self._turn + 1)
        return torch.tensor([a != b for a, b in zip(now, then, strict=True)])

    def _opened(self) -> tuple[Tensor, Tensor]:
        if self._lot is None:
            raise ValueError("no turn is open")
        return self._lot

    def _slope(self, points: Tensor, x: Tensor, signs: Tensor, lots: Tensor) -> Tensor:
        """∇ of the mean logistic loss over the lot plus λ/2 ‖w‖², (m, C, d); padding has sign 0 and no weight."""
        pull = torch.sigmoid(-signs * (x @ points.mT)) * signs
        return self._decay * points - (pull.mT @ x) / lots.to(x)[:, None, None]

    @staticmethod
    def _losses(points: Tensor, x: Tensor, signs: Tensor) -> Tensor:
        """(m, B, C) logistic losses, 0 where padded."""
        return torch.nn.functional.softplus(-signs * (x @ points.mT)) * (signs != 0)

    def _project(self, points: Tensor) -> Tensor:
        """Π: each class's weights back into the ball of radius R; non-expansive, and free after noise."""
        if self._radius is None:
            return points
        return points * (self._radius / points.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)

    def _event(self, i: int, mechanism: str, sigma: float, sensitivity: float) -> Event:
        return Event(
            step=self._turn,
            mechanism=mechanism,
            sigma=sigma,
            sensitivity=sensitivity,
            sampling=self._sampler.kind,
            rate=self._rates[i],
            adjacency=self._adjacency,
            parts=self._parts[i],
        )


def _within(x: Tensor, bound: float) -> Tensor:
    """Every record by itself into the ball of that radius: what the sensitivity rests on is enforced here."""
    norms = x.double().norm(dim=1, keepdim=True)
    shrink = (bound * (1 - 2.0**-22) / norms.clamp_min(1e-300)).clamp_max(1.0)
    return torch.where(torch.isfinite(norms), x * shrink.to(x), torch.zeros_like(x))
