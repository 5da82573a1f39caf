"""DP-dKM: an operator in place of the gradient step; in paper mode, noise on the messages instead of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import bare
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import SilentNoise
from gossamer.mechanism.reader import Book, Vector
from gossamer.methods.base import Carriage, Hosted, Reading
from gossamer.methods.claims import ClaimRule
from gossamer.methods.gossip import Gossip
from gossamer.methods.km import checks
from gossamer.methods.km.algorithm import KM, check_relaxation
from gossamer.methods.km.claim import Theorem1
from gossamer.methods.km.messages import NoisyMessages, Unreleased
from gossamer.methods.km.operators import check_step
from gossamer.methods.km.resolvent import NodeResolvent, RecordResolvent
from gossamer.methods.objective import linear_loss
from gossamer.models.losses import LinearLoss
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology


class OperatorMethod(Gossip):
    takes_resolvents = True
    own_claims = ("dp-dkm",)

    @property
    def noise_on_messages(self) -> bool:
        return self.config.privacy.noise.on == "iterate" and self.noise.adds

    def check_noise(self) -> None:
        checks.check(self.config)

    @property
    def believed_bound(self) -> str:
        if self.config.privacy.claim == "dp-dkm":
            return "The bound on the residual is assumed, as the paper does; nothing enforces it."
        return super().believed_bound

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
        if self.config.privacy.unit != "record":
            raise UserError(
                f"privacy.unit protects {self.config.privacy.protects.words()}, and algorithm.operator = "
                f"{rule.operator!r} takes resolvents, which are clipped record by record; use 'forward-backward'."
            )
        if self.config.privacy.centre is not None:
            raise UserError(
                f"privacy.centre = {self.config.privacy.centre:g} is for gradients, and algorithm.operator = "
                f"{rule.operator!r} takes resolvents; leave it out, or use operator = 'forward-backward'."
            )
        if self.config.data.class_weights is not None:
            raise UserError(
                f"data.class_weights is for gradients, and algorithm.operator = {rule.operator!r} takes resolvents; "
                "leave it out, or use operator = 'forward-backward'."
            )
        named = linear_loss(self.config)
        if named is None:
            raise UserError(
                f"algorithm.operator = {rule.operator!r} takes resolvents of the loss, which linear models have here: "
                "set model.kind = 'linear' and loss.kind, or use operator = 'forward-backward'."
            )
        if type(named).__module__ != LinearLoss.__module__:
            raise UserError(
                f"loss = {type(named).__name__} is not of this library, and algorithm.operator = {rule.operator!r} "
                "hands its resolvent all records of a lot, which it might mix; use operator = 'forward-backward'."
            )
        resolvent = RecordResolvent if rule.resolvent == "record" else NodeResolvent
        return resolvent(named.implicit_slope, rule.gamma)

    def reader(self, hosted: Hosted, how: Reading) -> Any:
        if self.noise_on_messages:
            hosted, how = (
                replace(hosted, noise=SilentNoise(hosted.noise.levels)),
                replace(how, book=Unreleased()),
            )
        return super().reader(hosted, how)

    def exchange(self, hosted: Hosted, how: Carriage) -> CountingExchange:
        plain = super().exchange(hosted, how)
        carried: CountingExchange = self.noised(plain, hosted, how.book, how.stream, start=how.reader.draws)
        return carried

    def noised(
        self, plain: Any, hosted: Hosted, book: Book, stream: Callable[[], Stream], *, start: int = 0
    ) -> Any:
        """The exchange with noise on the messages, if they are to carry it."""
        if not self.noise_on_messages:
            return plain
        return NoisyMessages(
            plain,
            noise=hosted.noise,
            scale=hosted.message_scale,
            stream=stream(),
            book=book,
            nodes=hosted.nodes,
            adjacency=hosted.adjacency,
            start=start,
        )

    def finish(self, exchange: Any, dimension: int) -> None:
        if self.noise_on_messages:
            exchange.publish(dimension)
