"""Wrappers around any algorithm. They see `grad` and `mix` as it does, so all of it is post-processing.

Each keeps what it needs in the algorithm's own state, as further tensors: checkpoints carry it like the rest.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Grad, Mix
from gossamer.algorithms.means import FilterMean, WindowMean
from gossamer.errors import UserError


@dataclass(frozen=True)
class Wrapper:
    """An algorithm with something around it; by itself, nothing is."""

    inner: Algorithm

    @property
    def weights(self) -> str:
        return self.inner.weights

    @property
    def draws(self) -> int:
        return self.inner.draws

    @property
    def mixes(self) -> int:
        return mixes_of(self.inner)

    def init(self, x0: Tensor) -> Any:
        return self.inner.init(x0)

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return self.inner.step(s, grad, mix, t)

    def model(self, s: Any) -> Tensor:
        return self.inner.model(s)


def bare(algorithm: Algorithm) -> Algorithm:
    """The method itself, without what is around it."""
    while isinstance(algorithm, Wrapper):
        algorithm = algorithm.inner
    return algorithm


def mixes_of(algorithm: Algorithm) -> int:
    """Exchanges in a round: so many graphs of the schedule go by."""
    return int(getattr(algorithm, "mixes", 1))


def within_draws(grad: Grad, algorithm: Algorithm, t: int) -> Grad:
    """The same `grad`, which refuses more calls in round t than the algorithm declared: the budget pays for no more."""
    most, calls, around = algorithm.draws, 0, algorithm
    while isinstance(around, Wrapper):
        most += isinstance(around, Centre) and t == 0
        around = around.inner

    def counted(points: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > most:
            raise UserError(
                f"{type(around).__name__}.draws = {around.draws}, but round {t} calls grad more often, and the budget "
                "pays for no more; set draws to the number of calls in a round."
            )
        return grad(points)

    return counted


def exchanges_before(algorithm: Algorithm, t: int, drawn: int | None = None) -> int:
    """How many graphs have gone by when round t begins, `drawn` draws after the first.

    Exact means go by their draws, which are never repeated: after a stop a round is, and some rounds have more draws.
    """
    if isinstance(algorithm, ExactMean) and drawn is not None:
        return drawn * algorithm.mean.exchanges
    return t * mixes_of(algorithm)


@dataclass(frozen=True)
class Momentum(Wrapper):
    """v ← β v + g, and v in place of g (Polyak 1964)."""

    beta: float

    def init(self, x0: Tensor) -> Any:
        return _with(self.inner.init(x0), velocity=x0.new_zeros(x0.shape))

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        own, velocity = _without(s, "velocity")

        def heavy(points: Tensor) -> Tensor:
            nonlocal velocity
            velocity = self.beta * velocity + grad(points)
            return velocity.clone()  # the algorithm may keep it, and a state's tensors share no memory

        own = self.inner.step(own, heavy, mix, t)
        return _with(own, velocity=velocity)

    def model(self, s: Any) -> Tensor:
        return self.inner.model(_without(s, "velocity")[0])


@dataclass(frozen=True)
class Mixes(Wrapper):
    """Every exchange `times` over, on as many graphs of the schedule: nearer to the mean, no record read."""

    times: int

    @property
    def mixes(self) -> int:
        return self.times * mixes_of(self.inner)

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        def often(*tensors: Tensor) -> Any:
            for _ in range(self.times):
                mixed = mix(*tensors)
                tensors = mixed if isinstance(mixed, tuple) else (mixed,)
            return tensors[0] if len(tensors) == 1 else tensors

        return self.inner.step(s, grad, often, t)


@dataclass(frozen=True)
class TailAverage(Wrapper):
    """The model is the mean of the iterates after `start` rounds (Polyak and Juditsky 1992)."""

    start: int

    def init(self, x0: Tensor) -> Any:
        own = self.inner.init(x0)
        return _with(own, average=self.inner.model(own).clone())

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        own, average = _without(s, "average")
        own = self.inner.step(own, grad, mix, t)
        count = max(1, t + 1 - self.start)
        return _with(own, average=average.lerp(self.inner.model(own), 1 / count))

    def model(self, s: Any) -> Tensor:
        average: Tensor = s.average
        return average


@dataclass(frozen=True)
class FinalGossip(Wrapper):
    """After round `last`, `rounds` exchanges of the models alone, which read no record."""

    last: int
    rounds: int

    def init(self, x0: Tensor) -> Any:
        own = self.inner.init(x0)
        return _with(own, agreed=self.inner.model(own).clone())

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        own, _ = _without(s, "agreed")
        own = self.inner.step(own, grad, mix, t)
        z = self.inner.model(own)
        return _with(own, agreed=agree(z, mix, self.rounds) if t == self.last else z.clone())

    def model(self, s: Any) -> Tensor:
        agreed: Tensor = s.agreed
        return agreed


@dataclass(frozen=True)
class Centre(Wrapper):
    """The first draw is the mean of the records, in the first `size` parameters; agreed upon, then left alone.

    c_i ← released mean / `bound`;  `rounds` exchanges as push-sum;  later gradients move the other parameters only.
    """

    size: int
    bound: float
    rounds: int

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        def others(points: Tensor) -> Tensor:
            g = grad(points).clone()
            g[:, : self.size] = 0  # no record moves the mean any more: what is there is noise
            return g

        if t > 0:
            return self.inner.step(s, others, mix, t)
        start = self.inner.model(s).clone()
        centre = grad(start)[:, : self.size] / self.bound
        start[:, : self.size] = agree(centre, mix, self.rounds)
        return self.inner.step(self.inner.init(start), others, mix, t)


@dataclass(frozen=True)
class ExactMean(Wrapper):
    """Every gradient is the exact mean of all nodes' gradients, so the nodes' states are equal, and exchange nothing.

    The graphs of a mean follow from the number of its draw: see `exchanges_before`.
    """

    mean: FilterMean | WindowMean

    @property
    def mixes(self) -> int:
        return self.mean.exchanges * self.draws

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return self.inner.step(s, lambda points: self.mean(grad(points), mix), _stay, t)


def _stay(*tensors: Tensor) -> Any:
    """The exchange of nodes that are all alike; copies, for whoever writes into what it got."""
    return tensors[0].clone() if len(tensors) == 1 else tuple(tensor.clone() for tensor in tensors)


def agree(z: Tensor, mix: Mix, rounds: int) -> Tensor:
    """Every node's z towards the mean over nodes, by push-sum: right for column and doubly stochastic weights."""
    w = z.new_ones(len(z), 1)
    for _ in range(rounds):
        z, w = mix(z, w)
    return z / w


@cache
def _state(fields: tuple[str, ...]) -> Any:
    return namedtuple("State", fields)


def _with(own: Any, **more: Tensor) -> Any:
    return _state((*own._fields, *more))(*own, *more.values())


def _without(s: Any, name: str) -> tuple[Any, Tensor]:
    """The inner algorithm's state, and the last tensor, which is the wrapper's own."""
    assert s._fields[-1] == name
    return _state(s._fields[:-1])(*s[:-1]), s[-1]
