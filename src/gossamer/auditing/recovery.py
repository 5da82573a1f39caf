"""From messages to scores: noised gradients by inverse update rules, their evidence, and a matched filter.

For an observer of all messages: a recovery is a generator that is sent one `Look` per exchange, finally the models as a
look that received nothing, and yields the draws that the look reveals. A new algorithm is one function and one line in
`RECOVERIES`.

For an observer of only some of them: every coordinate of a linear algorithm is the same small linear system over the
nodes; its state, the draws of a round and the messages are related by matrices. These are read off the algorithm's own
code, by one step on unit vectors. The noise of other nodes then has a known size and place, a Kalman filter whitens the
observations, and the score is the projection on the whitened signal: the best linear test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import ExactMean
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.attacks import AnswerReader
from gossamer.methods.km.proximal import Nothing
from gossamer.topology.schedule import Topology
from gossamer.training.assemble import Parts


@dataclass(frozen=True)
class Look:
    """One exchange: what all nodes sent and what mixing made of it. `received` is empty for the final models."""

    t: int
    sent: tuple[Tensor, ...]
    received: tuple[Tensor, ...]


@dataclass(frozen=True)
class Draw:
    """value = Σ gain · g_k over the draws k: a noised gradient, or several that cannot be told apart.

    Where messages carry noise of their own, `message_gain` times that of one message is in it too. `known` says which
    coordinates came through, all if None.
    """

    draws: tuple[int, ...]
    value: Tensor
    gains: tuple[Any, ...] = (1.0,)
    message_gain: float = 0.0
    known: Tensor | None = None


@dataclass(frozen=True)
class Sign:
    """Only whether g_k + offset is positive came through."""

    draw: int
    positive: Tensor
    offset: Tensor


@dataclass(frozen=True)
class Step:
    """Something that grows with g_k, in a way that cannot be inverted."""

    value: Tensor


Revealed = Draw | Sign | Step
Recovery = Generator[list[Revealed], Look, None]


def push_sum(a: PushSum, state: Any) -> Recovery:
    """The message is x − η g(x/w), and x is what mixing the last messages gave."""
    x = state.x
    look = yield []
    while look.received:
        g = (x - look.sent[0]) / a.lr(look.t)
        x = look.received[0]
        look = yield [Draw((look.t,), g)]
    yield []


def dsgd(a: DSGD, state: Any) -> Recovery:
    """θ⁺ = Wθ − η g(θ): the next message (or the final model) less the last mixture is the gradient."""
    revealed: list[Revealed] = []
    last = yield []
    while last.received:
        now = yield revealed
        revealed = [Draw((last.t,), (last.received[0] - now.sent[0]) / a.lr(last.t))]
        last = now
    yield revealed


def dsgt(a: DSGT, state: Any) -> Recovery:
    """y⁺ = Wy + g − g_prev is sent with θ: sums of its changes are the gradients. The last one is never sent."""
    g, revealed = state.g, list[Revealed]()
    last = yield []
    while (now := (yield revealed)).received:
        g = now.sent[1] - last.received[1] + g
        revealed, last = [Draw((last.t,), g)], now
    yield []


def exact_mean(a: ExactMean, state: Any) -> Recovery:
    """The first message of a mean is the gradient itself."""
    look = yield []
    while look.received:
        draw, step = divmod(look.t, a.mean.exchanges)
        look = yield [Draw((draw,), a.mean.read(look.sent[0]).float())] if step == 0 else []
    yield []


def dinno(a: DiNNO, state: Any) -> Recovery:
    """Duals and anchors follow from the messages, so what is left of a step is the gradient, or with Adam its sign."""
    revealed: list[Revealed] = []
    y = state.y
    last = yield []
    while last.received:
        now = yield revealed
        x, (neighbours, degree), lr = last.sent[0], last.received, a.lr(last.t)
        y = y + a.rho * (degree * x - neighbours)
        if a.include_self:
            neighbours, degree = neighbours + x, degree + 1
        known = y - a.rho * (degree * x + neighbours)  # what is added to g + 2ρ·degree·ψ in every inner step
        draws = tuple(last.t * a.steps + j for j in range(a.steps))
        if a.optimiser == "plain":
            # ψ ← (1 − 2ηρ·degree) ψ − η (g + known), `steps` times
            keep = 1 - 2 * lr * a.rho * degree
            gains = tuple(keep ** (a.steps - 1 - j) for j in range(a.steps))
            total = (keep**a.steps * x - now.sent[0]) / lr - sum(gains[1:], gains[0]) * known
            revealed = [Draw(draws, total, gains)]
        elif a.steps == 1 and not a.persistent:
            # The first step of a fresh Adam is η · h/(|h| + tiny): the sign of h = g + known + 2ρ·degree·x.
            revealed = [Sign(draws[0], now.sent[0] < x, known + 2 * a.rho * degree * x)]
        else:
            revealed = [Step((x - now.sent[0]) / lr)]
        last = now
    yield revealed


def km(a: KM, state: Any) -> Recovery:
    """Answers about records, one message later; the last iterate has no noise of its own."""
    answer = AnswerReader(a)
    revealed: list[Revealed] = []
    last = yield []
    while last.received:
        now = yield revealed
        revealed = []
        if now.received or answer.at_last_iterate(last.sent[0]):
            value, known = answer(last.sent[0], last.received[0], now.sent[0], a.lr(last.t))
            message_gain = 1 / abs(a.lr(last.t) * answer.gain) if now.received else 0.0
            revealed = [Draw((last.t,), value, message_gain=message_gain, known=known)]
        last = now
    yield revealed


RECOVERIES: dict[type, Callable[..., Recovery]] = {
    PushSum: push_sum, DSGD: dsgd, DSGT: dsgt, DiNNO: dinno, KM: km, ExactMean: exact_mean,
}  # fmt: skip


# Where the gradients are recovered only under a condition.
_EXACTLY: dict[type, Callable[[Any], bool]] = {
    KM: lambda a: isinstance(a.penalty, Nothing),
    DiNNO: lambda a: a.optimiser != "adam",
}


def reads_exactly(algorithm: Any) -> bool:
    """Are the gradients recovered exactly, not mixed with values of other nodes?"""
    return type(algorithm) not in _EXACTLY or _EXACTLY[type(algorithm)](algorithm)


class MessageReader:
    """A spectator that hands every draw that the messages, and the models if it sees them, reveal to `note`."""

    def __init__(self, algorithm: Any, note: Callable[[Revealed], None], *, sees_models: bool = True):
        self._algorithm, self._note, self._sees_models = algorithm, note, sees_models

    def start(self, state: Any) -> None:
        """Raises if the algorithm cannot be inverted."""
        kind = type(self._algorithm)
        if kind not in RECOVERIES:
            raise UserError(f"messages of {kind.__name__} cannot be read backwards; use --canary release.")
        self._recovery = RECOVERIES[kind](self._algorithm, state)
        next(self._recovery)

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None:
        for revealed in self._recovery.send(Look(t, sent, received)):
            self._note(revealed)

    def end(self, state: Any) -> None:
        if self._sees_models:
            self.see(-1, (self._algorithm.model(state),), ())


# --- the evidence of a noised gradient ------------------------------------------------------------------------

_LARGEST_EXPONENT = 80.0  # e^80 still fits into float32
_NORMAL_QUARTILE = 0.6745
_BEYOND = 1 + 1e-6  # how far rounding may carry a value over the end of its noise


@dataclass
class Attacker:
    """Log-likelihood ratios of "the canary is in" against "it is not" (or of one record against the other).

    The canary of row i and coordinate j moves a lot's sum by `signal` along axis j when it is in the lot, which happens
    with probability q: per draw log(1 − q + q·exp((s v − s²/2)/σ²)), the best any test can do.
    """

    parts: Parts
    size: float  # of the canaries' gradients before clipping
    replace_one: bool

    def __post_init__(self) -> None:
        o = self.parts.plan
        self._clip = self.parts.clip()
        self._rates = torch.tensor(list(self.parts.sampler.rates), dtype=torch.float32)[:, None]
        self.divisors = torch.tensor([node.lot / node.weight for node in o.privacy.nodes])[:, None]
        self._kind, self._noise = o.privacy.noise, self.parts.noise
        self._estimated = not (self._clip.scale_is_public and self._noise.scale_is_public)
        self._not_gaussian = self._noise.adds and self._noise.scale_is_public and not self._kind.gaussian
        on_messages = self.parts.noise_on_messages
        self._on_messages = self.parts.message_scale.float()[:, None] if on_messages else None
        self.scores: Any = torch.zeros(())  # (m, d) the sum of all log-likelihood ratios so far
        self._ends = torch.tensor([node.end for node in o.privacy.nodes])[:, None] * _BEYOND

    def signal(self, k: int) -> Tensor:
        """(m, 1): how far a sampled canary moves the clipped sum."""
        step = self._clip.at(k, len(self._rates))
        if step.of_lot:  # about L canaries on axes of their own share one bound
            return step.reference.to(self._rates)[:, None] / self.divisors.sqrt()
        size = torch.full_like(self._rates, self.size)
        norms = size if step.unit is None else size / step.unit.to(size)[:, None]
        return step.weigh(norms) * size

    def spread(self, k: int) -> Tensor:
        """(m, 1): the scale of the noise on the sum, a Gaussian's standard deviation, where it is public."""
        step, sigma = self._clip.at(k, len(self._rates)), torch.zeros_like(self._rates)
        if self._on_messages is None and self._noise.adds and self._noise.scale_is_public:
            sigma = (self._noise.levels(k) * step.reference.double()).float()[:, None]
        return torch.maximum(sigma, 1e-6 * self.signal(k))  # no noise at all: everything shows

    def add(self, revealed: Revealed) -> None:
        self.scores = self.scores + self.log_ratio(revealed).double()

    def log_ratio(self, revealed: Revealed) -> Tensor:
        """(m, d) evidence of one look."""
        if isinstance(revealed, Step):
            return revealed.value
        if isinstance(revealed, Sign):
            return self._sign(revealed)
        sums = self.sums(revealed)
        signal, spread = self._seen(revealed, sums)
        # Is its noise that of a single release, and not Gaussian?
        single = revealed.message_gain > 0 if self._on_messages is not None else len(revealed.draws) == 1
        if single and self._not_gaussian:
            evidence = self._shaped(sums, signal, spread)
        else:
            evidence = self._gaussian(sums, signal, spread, self._rates)
        return evidence if revealed.known is None else torch.where(revealed.known, evidence, 0.0)

    def sums(self, revealed: Draw) -> Tensor:
        """(m, d) the sums that were released."""
        return revealed.value * self.divisors

    def moved(self, revealed: Draw, row: int) -> float:
        """Return how far a sampled canary moves that row of it."""
        signal, _ = self._seen(revealed, self.sums(revealed))
        return float(signal.expand(len(self._rates), 1)[row, 0])

    def of_one_row(self, sums: Tensor, signal: float, spread: float, row: int) -> Tensor:
        """The evidence of sums that are Gaussian of that spread and of this row's sampling rate."""
        about = torch.tensor(signal).to(sums), torch.tensor(spread).to(sums), self._rates[row].to(sums)
        return self._gaussian(sums, *about)

    def linear_signal(self, k: int) -> Tensor:
        """(m, 1): the canary's mean effect on the released mean gradient."""
        return self._rates * self.signal(k) / self.divisors

    def linear_spread(self, k: int) -> Tensor:
        """(m, 1): the standard deviation of the noise on it; of a truncated one as before it was cut."""
        shape, deviation = self._kind.exponent, 1.0
        if self._not_gaussian:
            deviation = self._kind.scale * math.sqrt(math.gamma(3 / shape) / math.gamma(1 / shape))
        return deviation * self.spread(k) / self.divisors

    def _seen(self, revealed: Draw, sums: Tensor) -> tuple[Tensor, Tensor]:
        """(m, 1) each: how far the canary moves the revealed sum, and the spread of the noise in it."""
        if self._estimated:
            # The scale of the noise is not public, but most coordinates hold nothing else.
            spread = sums.abs().median(dim=1, keepdim=True).values / _NORMAL_QUARTILE
            if not self._clip.scale_is_public:
                z = self._clip.multiplier_left(self._noise.levels(revealed.draws[0]))
                return spread / z.float()[:, None], spread
            return torch.full_like(spread, self.size), spread
        signal, variance = torch.zeros(1), torch.zeros(1)
        for k, gain in zip(revealed.draws, revealed.gains, strict=True):
            signal = signal + gain * self.signal(k)
            variance = variance + (gain * self.spread(k)).square()
        if self._on_messages is not None:
            variance = variance + (revealed.message_gain * self._on_messages * self.divisors).square()
        return signal, variance.sqrt()

    def _shaped(self, sums: Tensor, signal: Tensor, spread: Tensor) -> Tensor:
        """The exact ratio under noise of density exp(−(|z|/s)^b), which may end."""

        def log_weight(shift: Tensor) -> Tensor:
            z = (sums - shift).abs()
            inside = -(z / (spread * self._kind.scale)).pow(self._kind.exponent)
            return torch.where(z <= self._ends * spread, inside, -torch.inf)

        # Beyond both ends is rounding: it tells nothing.
        evidence = self._sampled_ratio(log_weight, signal).nan_to_num(nan=0.0)
        return evidence.clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)

    def _sign(self, revealed: Sign) -> Tensor:
        side, centre = torch.where(revealed.positive, 1.0, -1.0), revealed.offset * self.divisors
        spread = self.spread(revealed.draw)

        def log_likelihood(shift: Tensor) -> Tensor:
            value: Tensor = torch.special.log_ndtr(side * (centre + shift) / spread)
            return value

        return self._sampled_ratio(log_likelihood, self.signal(revealed.draw))

    def _sampled_ratio(self, log_likelihood: Callable[[Tensor], Tensor], signal: Tensor) -> Tensor:
        """Log-likelihood ratios where a shift by `signal` happens with the sampling rate."""
        nothing = log_likelihood(torch.zeros_like(signal))

        def sampled(shift: Tensor) -> Tensor:
            happens = torch.log(self._rates) + log_likelihood(shift)
            return torch.logaddexp(torch.log1p(-self._rates) + nothing, happens)

        return sampled(signal) - (sampled(-signal) if self.replace_one else nothing)

    def _gaussian(self, sums: Tensor, signal: Tensor, spread: Tensor, rates: Tensor) -> Tensor:
        def mixture(sums: Tensor) -> Tensor:
            exponent = (signal * sums - signal.square() / 2) / spread.square().clamp_min(1e-30)
            exponent = exponent.clamp_max(_LARGEST_EXPONENT)
            evidence = torch.log1p(rates * torch.expm1(exponent)) if bool((rates < 1).any()) else exponent
            return torch.where(spread > 0, evidence.clamp_min(-_LARGEST_EXPONENT), 0.0)

        return mixture(sums) - mixture(-sums) if self.replace_one else mixture(sums)


# --- an observer of some of the messages ----------------------------------------------------------------------

Matrix = NDArray[np.float64]
_ROUNDING = 3e-7  # of the messages' size: float32 carries them


def visible_senders(topology: Topology, members: Sequence[int], t: int) -> list[int]:
    """The nodes whose messages of round t a coalition holds: its in-neighbours' and its own."""
    heard = {int(sender) for sender, receiver in topology.edges(t) if int(receiver) in members}
    return sorted(heard | set(members))


class LinearSystem:
    """One coordinate of an algorithm: z⁺ = A (z, g), messages = B (z, g), model = C z, all nodes stacked."""

    def __init__(self, algorithm: Any, topology: Topology, dimension: int):
        if isinstance(algorithm, ExactMean):
            what = "algorithm.mixes = 'exact' has several exchanges a mean, in numbers of its own"
            raise UserError(f"{what}, which only --observer all can read.")
        self._algorithm, self.topology, self._n = algorithm, topology, topology.nodes
        start = algorithm.init(torch.zeros(self._n, dimension, dtype=torch.float64))
        self._leaves = [name for name, v in start._asdict().items() if v.shape[1:] == (dimension,)]
        self._public = {name: v for name, v in start._asdict().items() if name not in self._leaves}
        self.states, self.draws = len(self._leaves) * self._n, algorithm.draws * self._n
        self._refuse_nonlinear()

    def initial(self, state: Any) -> Matrix:
        """(states, columns) from the stacked state at the start."""
        parts = [getattr(state, name).reshape(self._n, -1) for name in self._leaves]
        return torch.cat(parts).double().numpy()

    def step(self, t: int) -> tuple[Matrix, list[Matrix]]:
        """(A, [B of every tensor that is sent]); also moves the public part of the state on."""
        columns = torch.eye(self.states + self.draws, dtype=torch.float64)
        after, sent = self._apply(columns, t)
        self._public = {name: getattr(after, name) for name in self._public}
        return self._stack(after), [message.numpy() for message in sent]

    def model(self) -> Matrix:
        """C at the public state as it stands."""
        columns = torch.eye(self.states, dtype=torch.float64)
        return np.asarray(self._algorithm.model(self._state(columns)).numpy())

    def _apply(self, columns: Tensor, t: int) -> tuple[Any, list[Tensor]]:
        n = self._n
        sent: list[Tensor] = []
        mixing = torch.from_numpy(self.topology.weights(t).toarray())
        draws = iter(columns[self.states :].reshape(-1, n, columns.shape[1]))

        def mix(*tensors: Tensor) -> Any:
            sent.extend(tensor for tensor in tensors if tensor.shape[1] == columns.shape[1])
            mixed = tuple(mixing @ tensor for tensor in tensors)
            return mixed[0] if len(mixed) == 1 else mixed

        return self._algorithm.step(self._state(columns), lambda _: next(draws), mix, t), sent

    def _state(self, columns: Tensor) -> Any:
        n, kind = self._n, type(self._algorithm.init(columns.new_zeros(self._n, 2)))
        leaves = {name: columns[i * n : (i + 1) * n].clone() for i, name in enumerate(self._leaves)}
        return kind(**leaves, **self._public)

    def _stack(self, state: Any) -> Matrix:
        return np.asarray(torch.cat([getattr(state, name) for name in self._leaves]).numpy())

    def _refuse_nonlinear(self) -> None:
        """Superposition on a random vector: Adam, for one, does not have it."""
        size = self.states + self.draws
        columns = torch.eye(size, dtype=torch.float64)
        one = torch.randn(size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        matrix, direct = self._stack(self._apply(columns, 0)[0]), self._stack(self._apply(one, 0)[0])
        if not np.allclose(matrix @ one.numpy(), direct, rtol=1e-6, atol=1e-9):
            what = "this algorithm's messages are not linear in its gradients, so only --observer all can read them"
            linear = "DiNNO's are with algorithm.optimiser = 'plain', dp-dkm's with algorithm.penalty.kind = 'none'"
            raise UserError(f"{what}; {linear}.")


class Filter:
    """An observer of some of the messages, or of the final models; one score per column.

    Where nodes share noise, `correlation` is the covariance of the noise of a draw that the observer does not know, in
    units of each node's own, and `known` the noise that it knows.
    """

    def __init__(
        self,
        system: LinearSystem,
        attacker: Attacker,
        view: Observer,
        *,
        runs: int,
        correlation: Matrix | None = None,
        known: Callable[[int], Tensor] | None = None,
    ):
        self._system, self._attacker, self._view, self._runs = system, attacker, view, runs
        self._correlation, self._known = correlation, known
        self.scores: Matrix = np.zeros(0)
        self.mu_squared = 0.0  # what the scores' separation should be

    def start(self, state: Any) -> None:
        states = self._system.states
        self._estimate, self._covariance = self._system.initial(state), np.zeros((states, states))
        # The canary's effect on the state, and the share of it that was seen.
        self._shift, self._expected = np.zeros(states), np.zeros(states)
        self.scores = np.zeros(self._estimate.shape[1])

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None:
        forward, messages = self._system.step(t)
        n, columns = len(messages[0]), self._estimate.shape[1]
        per_round = self._system.draws // n
        draws = range(t * per_round, (t + 1) * per_round)

        def by_node(value: Tensor) -> Matrix:
            return np.asarray(value.double().numpy().reshape(n, -1))

        spreads = [by_node(self._attacker.linear_spread(k))[:, 0] for k in draws]
        victim = np.arange(n) == self._view.target
        signals = [np.where(victim, by_node(self._attacker.linear_signal(k))[:, 0], 0.0) for k in draws]
        noise = [np.zeros((len(draws) * n, columns))]
        if self._known is not None:
            noise = [by_node(self._known(k) / self._attacker.divisors) for k in draws]
        correlation = np.eye(n) if self._correlation is None else self._correlation
        mean = np.concatenate([self._estimate, *noise])
        spread = block_diag(self._covariance, *(correlation * np.outer(own, own) for own in spreads))
        truth = np.concatenate([self._shift, *signals])
        believed = np.concatenate([self._expected, np.zeros(len(draws) * n)])
        if not self._view.sees_models:
            rows = visible_senders(self._system.topology, self._view.members, t)
            look = np.concatenate([message[rows] for message in messages])
            seen = [by_node(value)[rows] for value in sent if value[0].numel() * self._runs == columns]
            mean, spread, believed = self._update(look, np.concatenate(seen), mean, spread, truth, believed)
        self._estimate, self._covariance = forward @ mean, forward @ spread @ forward.T
        self._shift, self._expected = forward @ truth, forward @ believed

    def end(self, state: Any) -> None:
        if self._view.sees_models:
            look = self._system.model()
            seen = look @ self._system.initial(state)  # the models, by the public part of the state
            self._update(look, seen, self._estimate, self._covariance, self._shift, self._expected)

    def _update(
        self, look: Matrix, seen: Matrix, mean: Matrix, spread: Matrix, truth: Matrix, believed: Matrix
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Condition on what is seen; add the whitened signal's projection to the scores."""
        rounding = (_ROUNDING * (np.abs(seen).max(initial=0.0) + 1e-30)) ** 2
        cross = spread @ look.T
        inner = look @ cross + rounding * np.eye(len(look))
        surprise, effect = seen - look @ mean, look @ (truth - believed)
        weights = np.linalg.solve(inner, np.concatenate([cross.T, effect[:, None]], axis=1))
        gain, direction = weights[:, :-1].T, weights[:, -1]
        self.scores += direction @ surprise
        self.mu_squared += float(direction @ effect)
        spread = spread - gain @ cross.T
        return mean + gain @ surprise, (spread + spread.T) / 2, believed + gain @ effect
