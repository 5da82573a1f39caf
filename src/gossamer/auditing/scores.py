"""Scores of an attacker that knows the public constants of the mechanism and what a canary adds to a draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer.auditing.recovery import Draw, Revealed, Sign, Step
from gossamer.training.assemble import Parts

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
        self._on_messages = (
            self.parts.message_scale.float()[:, None] if self.parts.noise_on_messages else None
        )
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
        if self._has_shape(revealed):
            evidence = self._shaped(sums, signal, spread)
        else:
            evidence = _mixture(sums, signal, spread, self._rates)
            if self.replace_one:
                evidence = evidence - _mixture(-sums, signal, spread, self._rates)
        return evidence if revealed.known is None else torch.where(revealed.known, evidence, 0.0)

    def sums(self, revealed: Draw) -> Tensor:
        """(m, d) the sums that were released."""
        return revealed.value * self.divisors

    def moved(self, revealed: Draw, row: int) -> float:
        """How far a sampled canary moves that row of it."""
        signal, _ = self._seen(revealed, self.sums(revealed))
        return float(signal.expand(len(self._rates), 1)[row, 0])

    def of_one_row(self, sums: Tensor, signal: float, spread: float, row: int) -> Tensor:
        """The evidence of sums that are Gaussian of that spread and of this row's sampling rate."""
        about = torch.tensor(signal).to(sums), torch.tensor(spread).to(sums), self._rates[row].to(sums)
        evidence = _mixture(sums, *about)
        return evidence - _mixture(-sums, *about) if self.replace_one else evidence

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

    def _has_shape(self, revealed: Draw) -> bool:
        """Is its noise that of a single release, and not Gaussian?"""
        released = revealed.message_gain > 0 if self._on_messages is not None else len(revealed.draws) == 1
        return released and self._not_gaussian

    def _shaped(self, sums: Tensor, signal: Tensor, spread: Tensor) -> Tensor:
        """The exact ratio under noise of density exp(−(|z|/s)^b), which may end."""
        shape, unit = self._kind.exponent, spread * self._kind.scale

        def log_weight(z: Tensor) -> Tensor:
            inside = -(z.abs() / unit).pow(shape)
            return torch.where(z.abs() <= self._ends * spread, inside, -torch.inf)

        def sampled(shift: Tensor) -> Tensor:
            return torch.logaddexp(
                torch.log1p(-self._rates) + log_weight(sums),
                torch.log(self._rates) + log_weight(sums - shift),
            )

        other = sampled(-signal) if self.replace_one else log_weight(sums)
        # Beyond both ends is rounding: it tells nothing.
        return (sampled(signal) - other).nan_to_num(nan=0.0).clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)

    def _sign(self, revealed: Sign) -> Tensor:
        k, q = revealed.draw, self._rates
        side = torch.where(revealed.positive, 1.0, -1.0)
        centre = revealed.offset * self.divisors
        signal, spread = self.signal(k), self.spread(k)

        def log_likelihood(shift: Tensor) -> Tensor:
            value: Tensor = torch.special.log_ndtr(side * (centre + shift) / spread)
            return value

        def sampled(shift: Tensor) -> Tensor:
            nothing = log_likelihood(torch.zeros_like(shift))
            if bool((q == 1).all()):
                return log_likelihood(shift)
            return torch.logaddexp(torch.log1p(-q) + nothing, torch.log(q) + log_likelihood(shift))

        other = sampled(-signal) if self.replace_one else log_likelihood(torch.zeros_like(signal))
        evidence: Tensor = sampled(signal) - other
        return evidence


def _mixture(sums: Tensor, signal: Tensor, spread: Tensor, rates: Tensor) -> Tensor:
    exponent = ((signal * sums - signal.square() / 2) / spread.square().clamp_min(1e-30)).clamp_max(
        _LARGEST_EXPONENT
    )
    evidence = torch.log1p(rates * torch.expm1(exponent)) if bool((rates < 1).any()) else exponent
    return torch.where(spread > 0, evidence.clamp_min(-_LARGEST_EXPONENT), 0.0)
