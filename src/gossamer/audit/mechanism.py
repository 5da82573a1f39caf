"""What an attacker knows of the mechanism: its public constants, and what a canary does to a draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.audit.recovery import Draw, Sign, Step
from gossamer.build import Parts
from gossamer.private.clipping import QuantileClip

_LARGEST_EXPONENT = 80.0  # e^80 still fits into float32
_NORMAL_QUARTILE = 0.6745


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
        o = self.parts.outline
        self._clip = self.parts.clip()
        self._rates = torch.tensor(list(self.parts.sampler.rates), dtype=torch.float32)[:, None]
        self._divisors = torch.tensor([node.lot / node.weight for node in o.plan.nodes])[:, None]
        self._estimated = (
            isinstance(self._clip, QuantileClip) or self.parts.noise.mechanism == "own-norm-gaussian"
        )

    def signal(self, k: int) -> Tensor:
        """(m, 1): how far a sampled canary moves the clipped sum."""
        step = self._clip.at(k, len(self._rates))
        size = torch.full_like(self._rates, self.size)
        norms = size if step.unit is None else size / step.unit.to(size)[:, None]
        return step.weigh(norms) * size

    def spread(self, k: int) -> Tensor:
        """(m, 1): the standard deviation of the noise on the sum, where it is public."""
        step = self._clip.at(k, len(self._rates))
        multiplier = self.parts.noise.multiplier(k) if self.parts.noise.mechanism == "gaussian" else 0.0
        sigma = (multiplier * step.reference.double()).float()[:, None]
        return torch.maximum(sigma, 1e-6 * self.signal(k))  # no noise at all: everything shows

    def log_ratio(self, found: Draw | Sign | Step) -> Tensor:
        """(m, d) evidence of one look."""
        if isinstance(found, Step):
            return found.value
        if isinstance(found, Sign):
            return self._sign(found)
        sums = found.value * self._divisors
        signal, spread = self._seen(found, sums)
        evidence = self._mixture(sums, signal, spread)
        return evidence - self._mixture(-sums, signal, spread) if self.replace_one else evidence

    def linear_signal(self, k: int) -> Tensor:
        """(m, 1): the canary's mean effect on the released mean gradient."""
        return self._rates * self.signal(k) / self._divisors

    def linear_spread(self, k: int) -> Tensor:
        return self.spread(k) / self._divisors

    def _seen(self, found: Draw, sums: Tensor) -> tuple[Tensor, Tensor]:
        if self._estimated:
            # The scale of the noise is not public, but most coordinates hold nothing else.
            spread = sums.abs().median(dim=1, keepdim=True).values / _NORMAL_QUARTILE
            if isinstance(self._clip, QuantileClip):
                z = self._clip.gradient_multiplier(self.parts.noise.multiplier(found.draws[0]))
                return spread / z.float()[:, None], spread
            return torch.full_like(spread, self.size), spread
        signal: Tensor = sum(
            (gain * self.signal(k) for k, gain in zip(found.draws, found.gains, strict=True)), torch.zeros(1)
        )
        variance: Tensor = sum(
            (
                (gain * self.spread(k)).square()
                if isinstance(gain, Tensor)
                else gain**2 * self.spread(k).square()
                for k, gain in zip(found.draws, found.gains, strict=True)
            ),
            torch.zeros(1),
        )
        return signal, variance.sqrt()

    def _mixture(self, sums: Tensor, signal: Tensor, spread: Tensor) -> Tensor:
        exponent = ((signal * sums - signal.square() / 2) / spread.square().clamp_min(1e-30)).clamp_max(
            _LARGEST_EXPONENT
        )
        evidence = (
            torch.log1p(self._rates * torch.expm1(exponent)) if bool((self._rates < 1).any()) else exponent
        )
        return torch.where(spread > 0, evidence.clamp_min(-_LARGEST_EXPONENT), 0.0)

    def _sign(self, found: Sign) -> Tensor:
        k, q = found.draw, self._rates
        side = torch.where(found.positive, 1.0, -1.0)
        centre = found.offset * self._divisors
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
