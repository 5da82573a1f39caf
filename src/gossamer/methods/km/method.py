"""DP-dKM: an operator in place of the gradient step; in paper mode, noise on the messages instead of the answers.

In the paper's Algorithm 1 (lines 7 and 8) the answers about records stay on their node un-noised, and what is perturbed
is the iterate a node sends. Its sensitivity is a belief about the whole trajectory (Theorem 1), which nothing here
enforces: releases say ∞.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gossamer.accounting.releases import Event, Release
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import bare
from gossamer.config.checks import Row, refuse
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Mechanism, NoiseKind, Participation
from gossamer.mechanism.noise.base import Silent, SilentNoise
from gossamer.mechanism.reader import Book, Vector
from gossamer.methods import claims
from gossamer.methods.base import Method, linear_loss
from gossamer.methods.claims import Claim, ClaimRule, Draws
from gossamer.methods.km.algorithm import KM, check_relaxation
from gossamer.methods.km.operators import check_step
from gossamer.methods.km.resolvent import NodeResolvent, RecordResolvent
from gossamer.models.losses import LinearLoss
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology

if TYPE_CHECKING:
    from gossamer.training.assemble import Parts
    from gossamer.training.run import Run


class OperatorMethod(Method):
    takes_resolvents = True
    own_claims = ("dp-dkm",)

    @property
    def noise_on_messages(self) -> bool:
        return self.config.privacy.noise.on == "iterate" and self.noise.adds

    @property
    def assumed_bound(self) -> str:  # type: ignore[override]
        if self.config.privacy.claim == "dp-dkm":
            return "The bound on the residual is assumed, as the paper does; nothing enforces it."
        return super().assumed_bound

    def noise_refusals(self) -> Iterator[Row]:
        """Refuse what DP-dKM's noise and operators cannot be combined with."""
        config, options, noise = self.config, self.config.algorithm, self.config.privacy.noise
        iterate, key, schedule = noise.on == "iterate", ("privacy.noise.on", noise.on), noise.schedule.kind
        several = bool(options.mixes != 1 or options.final_gossip or config.privacy.centre)
        remedy = "leave out algorithm.mixes, algorithm.final_gossip and privacy.centre"
        yield iterate and several, *key, "pays for one message a round", remedy
        problem = f"gives every message the same noise, not privacy.noise.schedule.kind = {schedule!r}"
        yield iterate and schedule not in ("constant", "none"), *key, problem, "use 'constant'"
        problem = "mixes all records of a node into one vector, so clipping it bounds no record's influence"
        node = options.resolvent == "node" and not iterate and noise.kind.adds
        yield node, "algorithm.resolvent", "node", problem, "use 'record'"
        problem = (
            "has no proof (the operator is evaluated at iterates that were never released and the last one is given "
            "out without noise)"
        )
        remedy = "use 'gradient', or mode = \"paper\" to study it"
        yield config.mode == "sound" and noise.kind.adds and iterate, *key, problem, remedy

    def check(self, classes: int | None) -> None:
        """Is the step one with which the operator is nonexpansive, as far as public facts tell?

        A smooth loss of records in the unit ball has L at most its curvature; elsewhere L is what the user declares.
        """
        super().check(classes)
        km, named = self._rule(self.algorithm()), linear_loss(self.config)
        check_relaxation(km.lr, self.config.rounds)
        if named is None:
            return
        kinked = math.isinf(named.curvature)
        unit_ball = self.config.data.scale == "unit-ball"
        if kinked or (unit_ball and km.smoothness is None):
            check_step(km.mapping, km.gamma, named.curvature)

    @staticmethod
    def _rule(algorithm: Algorithm) -> KM:
        rule = bare(algorithm)
        assert isinstance(rule, KM)
        return rule

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        if self.config.privacy.claim != "dp-dkm":
            return super().claim(algorithm, topology, classes, records)
        rule = self._rule(algorithm)
        if rule.weights != "doubly" or (gap := topology.figures().get("spectral gap")) is None:
            raise UserError(
                f"topology.kind = {self.config.topology.kind!r} has no spectral gap that Theorem 1 of dp-dkm could "
                "use; use ring, star or complete."
            )
        relaxations = tuple(rule.lr(t) for t in range(self.config.rounds))
        return Theorem1(relaxations, rule.gamma, 1 - gap, records)

    def vector(self, algorithm: Algorithm, module: nn.Module, classes: int | None) -> Vector:
        """A record's loss gradient, or what its resolvent moves by."""
        gradient, rule = super().vector(algorithm, module, classes), self._rule(algorithm)
        if rule.mapping.asks == "gradient":
            return gradient
        refuse(self._resolvent_refusals(rule.operator))
        named = linear_loss(self.config)
        assert named is not None
        resolvent = RecordResolvent if rule.resolvent == "record" else NodeResolvent
        return resolvent(named.implicit_slope, rule.gamma)

    def _resolvent_refusals(self, operator: str) -> Iterator[Row]:
        config, named, remedy = self.config, linear_loss(self.config), "use operator = 'forward-backward'"
        takes = f"algorithm.operator = {operator!r} takes resolvents"
        unfit = {
            "privacy.unit": config.privacy.unit != "record",
            "privacy.centre": config.privacy.centre is not None,
            "data.class_weights": config.data.class_weights is not None,
        }
        problem = f"is for gradients, and {takes}, record by record"
        for key, wrong in unfit.items():
            yield wrong, key, None, problem, f"leave it out, or {remedy}"
        problem = "takes resolvents of the loss, which linear models have here"
        linear = f"set model.kind = 'linear' and loss.kind, or {remedy}"
        yield named is None, "algorithm.operator", operator, problem, linear
        own = type(named).__module__ != LinearLoss.__module__
        problem = f"is not of this library, and {takes} of all records of a lot, which it might mix"
        yield own, "loss", type(named).__name__, problem, remedy

    def reader(self, parts: Parts, book: Book, stream: Stream, written: Sequence[int] | None = None) -> Any:
        if self.noise_on_messages:
            parts, book = replace(parts, noise=SilentNoise(parts.noise.levels)), Unreleased()
        return super().reader(parts, book, stream, written)

    def exchange(self, run: Run) -> CountingExchange:
        plain, start = super().exchange(run), run.reader.draws
        noised: CountingExchange = self.noised(plain, run.parts, run.book, run.parts.stream, start=start)
        return noised

    def noised(self, plain: Any, parts: Parts, book: Book, stream: Callable[[], Stream], *, start: int = 0) -> Any:
        """The exchange with noise on the messages, if they are to carry it."""
        if not self.noise_on_messages:
            return plain
        scale, adjacency = parts.message_scale, parts.plan.privacy.adjacency
        return NoisyMessages(plain, parts.noise, scale, stream(), book, list(parts.nodes), adjacency, start)

    def finish(self, exchange: Any, dimension: int) -> None:
        if self.noise_on_messages:
            exchange.publish(dimension)


@dataclass(frozen=True)
class Theorem1:
    """Δ_K for a residual bound B = γ: what one record moves, in units of the clip's bound."""

    relaxations: tuple[float, ...]  # α_k
    gamma: float
    mixing: float  # λ, the second largest eigenvalue of W in size
    records: int  # N·M

    def covers(self, noise: NoiseKind) -> bool:
        return True

    def sensitivity(self, draws: int) -> float:
        relaxations = self.relaxations[:draws]
        return claims.km_sensitivity(self.gamma, relaxations, self.records, 1, self.mixing)

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return claims.km(run.noise.released_as.kind, factor, delta, self.sensitivity(draws), run.noise.exponent)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        """(σ in units of the clip's bound, A/σ)."""
        unit = self.sensitivity(run.draws)
        sigma, bound = claims.km_noise(run.noise.released_as.kind, epsilon, delta, unit, run.noise.exponent)
        return sigma, bound / sigma


@dataclass
class NoisyMessages:
    """mix(t, x) = W x̃, x̃ = x + noise: an exchange around an exchange. One event per node and message."""

    exchange: CountingExchange
    noise: Mechanism
    scale: Tensor
    stream: Stream
    book: Book
    nodes: Sequence[int]
    adjacency: str
    sent: int = 0  # messages on file: a run that is resumed draws no noise twice

    @property
    def bytes_sent(self) -> int:
        return self.exchange.bytes_sent

    @property
    def _part(self) -> Participation:
        return Participation("full", 1.0, self.adjacency)

    def __call__(self, t: int, x: Tensor) -> Any:
        k, self.sent = self.sent, self.sent + 1
        alike: dict[Release, list[int]] = {}
        for i, node in enumerate(self.nodes):
            scale = float(self.scale[i])
            release = self.noise.release(i, scale, 1.0, x.shape[1], self._part, enforced=False)
            alike.setdefault(release, []).append(node)
        self.book.write([(nodes, Event(draw=k, release=release)) for release, nodes in alike.items()])
        message, unit = x.clone(), torch.ones_like(self.scale)
        self.noise.add(self.stream, self.nodes, k, message, multiplier=self.scale, bound=unit, active=unit > 0)
        return self.exchange(t, message)

    def publish(self, dimension: int) -> None:
        """Line 11: the last iterates are given out as they are, without noise."""
        plain = Silent().release(0.0, float("inf"), dimension, self._part, float("inf"))
        self.book.write([(self.nodes, Event(draw=self.sent, release=plain))])


class Unreleased:
    """The book of answers that never leave their node: nothing is spent on them."""

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        pass
