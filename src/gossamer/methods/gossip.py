"""The method that most are: private gradients of every node, exchanged by mixing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import FinalGossip, Mixes, Momentum, TailAverage, within_draws
from gossamer.config.methods import of_a_paper
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.reader import Book, PrivateGradient, Vector
from gossamer.methods.base import Carriage, Hosted, Reading
from gossamer.methods.claims import CLAIMS, ClaimRule, NoClaim
from gossamer.methods.objective import gradient_vector
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology


class Gossip:
    keeps_local_models = False
    takes_resolvents = False
    own_claims: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: RunConfig, rule: type[Any]):
        self.config, self.rule = config, rule

    @property
    def noise(self) -> NoiseKind:
        return self.config.privacy.noise.kind.among(self.config.nodes)

    @property
    def noise_on_messages(self) -> bool:
        return False

    def algorithm(self) -> Algorithm:
        """The update rule with what the configuration puts around it, innermost first."""
        asked, rounds = self.config.algorithm, self.config.rounds
        made: Algorithm = self.bare()
        if asked.momentum:
            made = Momentum(made, asked.momentum)
        if isinstance(asked.mixes, int) and asked.mixes > 1:
            made = Mixes(made, asked.mixes)
        if asked.tail_average:
            made = TailAverage(made, rounds - max(1, round(asked.tail_average * rounds)))
        if asked.final_gossip and asked.mixes != "exact":  # which leaves nothing to agree upon
            made = FinalGossip(made, rounds - 1, asked.final_gossip)
        return made

    def bare(self) -> Any:
        """The update rule alone, with its step sizes and options."""
        return self.config.algorithm.make(rounds=self.config.rounds, seed=self.config.seed)

    def check(self, classes: int | None) -> None:
        """Means are agreed upon by mixing, which sums over neighbours are not."""
        self.check_noise()
        self.check_claim()
        self.check_clip()
        asked, centre = self.config.algorithm, self.config.privacy.centre
        if self.rule.weights != "adjacency":
            return
        if asked.mixes != 1 or asked.final_gossip:
            raise UserError(
                f"algorithm.kind = {asked.kind!r} exchanges sums over neighbours, not means; "
                "leave algorithm.mixes and algorithm.final_gossip out, or use another method."
            )
        if centre is not None:
            raise UserError(
                f"privacy.centre = {centre:g} needs nodes that agree on a mean, and algorithm.kind = "
                f"{asked.kind!r} exchanges sums over neighbours; use another method."
            )

    def check_noise(self) -> None:
        """Noise is on the gradients and, in a paper, Gaussian."""
        noise, kind = self.config.privacy.noise, self.config.algorithm.kind
        if noise.on == "iterate":
            raise UserError(
                f"privacy.noise.on = 'iterate' is for dp-dkm; algorithm.kind = {kind!r} puts noise on the gradient."
            )
        if noise.kind.cancels and self.keeps_local_models:
            raise UserError(
                f"privacy.noise.family.kind = {noise.family.kind!r} needs nodes that release all that their records "
                f"move, and algorithm.kind = {kind!r} keeps local models; use 'gaussian', or another method."
            )
        if self.config.mode == "paper" and (noise.family.cancels or not noise.family.gaussian):
            raise UserError(
                f"privacy.noise.family.kind = {noise.family.kind!r} is no noise of this method's paper; use "
                "'gaussian', or mode = \"sound\"."
            )

    def check_claim(self) -> None:
        """Another method's claim is not this one's."""
        claim, known = self.config.privacy.claim, ["none", *CLAIMS, *self.own_claims]
        if claim != "none" and not of_a_paper(self.config.algorithm.kind):
            raise UserError(
                f"privacy.claim = {claim!r} is the formula of a paper, and algorithm.kind = "
                f"{self.config.algorithm.kind!r} is in none: it has no claim, and what is proven holds without one; "
                "leave privacy.claim out."
            )
        if claim not in known:
            raise UserError(
                f"privacy.claim = {claim!r} is another method's; algorithm.kind = {self.config.algorithm.kind!r} can "
                f"have {', '.join(known)}."
            )

    def check_clip(self) -> None:
        clip = self.config.privacy.clip
        if math.isfinite(clip.record_bound) and not self.keeps_local_models:
            raise UserError(
                f"privacy.clip.kind = {clip.kind!r} scales records, not their gradients, and algorithm.kind = "
                f"{self.config.algorithm.kind!r} releases those; use 'constant'."
            )

    def notes(self) -> list[str]:
        return []

    @property
    def believed_bound(self) -> str:
        """What must be said where a bound is assumed and not enforced."""
        return "The gradient bound is believed, not enforced; the paper measured it on private records."

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        return CLAIMS.get(self.config.privacy.claim, NoClaim(self.config.algorithm.kind))

    def vector(self, algorithm: Algorithm, module: nn.Module, classes: int | None) -> Vector:
        return gradient_vector(self.config, module, classes)

    def reader(self, hosted: Hosted, how: Reading) -> Any:
        return PrivateGradient(
            vector=how.vector(),
            records=hosted.records,
            sampler=hosted.sampler,
            clip=hosted.clip,
            noise=hosted.noise,
            stream=how.stream,
            book=how.book,
            nodes=hosted.nodes,
            lots=hosted.lots,
            divisors=hosted.divisors,
            allowance=hosted.allowance,
            adjacency=hosted.adjacency,
            diagnostics=hosted.diagnostics,
            written=how.written,
        )

    def exchange(self, hosted: Hosted, how: Carriage) -> CountingExchange:
        """Gradients draw their next noise while messages travel."""
        made = how.group.exchange(how.topology, how.run, partial(how.reader.draw_ahead, how.dimension))
        made.bytes_sent = how.bytes_sent
        return made

    def noised(
        self, plain: Any, hosted: Hosted, book: Book, stream: Callable[[], Stream], *, start: int = 0
    ) -> Any:
        """The exchange with what is done to a message before it leaves: nothing."""
        return plain

    def finish(self, exchange: Any, dimension: int) -> None:
        """Everything that is given out was released as a message."""

    def bytes_per_round(self, algorithm: Algorithm, topology: Topology, dimension: int) -> float:
        """What a message holds, over every link of a round; the mean over the first period."""
        rounds = range(min(topology.period or 8, 64))
        links = float(np.mean([topology.out_degree(t).sum() for t in rounds]))
        return float(bytes_per_message(algorithm, dimension) * links)

    def released(self, algorithm: Algorithm, state: Any, hosted: int) -> Tensor:
        return algorithm.model(state)

    def scored(self, algorithm: Algorithm, state: Any, reader: Any, hosted: int) -> Tensor:
        return self.released(algorithm, state, hosted)

    def judges_unreleased(self) -> str | None:
        return None

    def lost_at_a_stop(self) -> bool:
        # A pass cannot be taken up again: dealt anew, its lots would hold records that earlier ones held already.
        return self.config.privacy.sampling.disjoint

    def kept(self, state: Any, reader: Any) -> dict[str, Any]:
        kept = {key: value for key, value in state._asdict().items() if isinstance(value, Tensor)}
        return kept | {f"gradient.{key}": value for key, value in reader.state().items()}

    def restore(self, state: Any, reader: Any, saved: dict[str, Any]) -> Any:
        reader.restore(named(saved, "gradient."))
        return type(state)(**{key: fitting(key, value, saved) for key, value in state._asdict().items()})


def fitting(key: str, fresh: Tensor, saved: dict[str, Any]) -> Tensor:
    """The saved tensor of that name, if it has the shape of the fresh one."""
    found = saved.get(key)
    if found is None or found.shape != fresh.shape:
        raise UserError(f"the checkpoint's '{key}' does not fit this configuration's algorithm and model.")
    value: Tensor = found.to(fresh)
    return value


def named(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def bytes_per_message(algorithm: Algorithm, dim: int) -> int:
    """How much a node sends over a link in a round: one step on zeros, counted.

    Zeros and not tensors without content ("meta"): those load half of torch's compiler, two seconds of it.
    """
    sent = 0

    def count(*tensors: Tensor) -> Any:
        nonlocal sent
        sent += sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
        return tensors[0] if len(tensors) == 1 else tensors

    # Round 1: what happens only at the start is not what a round holds.
    algorithm.step(
        algorithm.init(torch.zeros(1, dim)), within_draws(torch.zeros_like, algorithm, 1), count, 1
    )
    return sent
