"""The attack on the mechanism alone: the planned releases of one node, drawn in one dimension, without a training.

For messages that cannot be inverted, or before there is an algorithm. The attacker gets every noised sum and knows the
densities, so its score is the exact log-likelihood ratio: what the accountants price.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import CLIPPED_LOT, Release
from gossamer.auditing.bounds import Coins
from gossamer.auditing.canaries import flip
from gossamer.auditing.verdict import Attack
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream

Floats = NDArray[np.float64]
_PARTICIPATION, _SIZE, _SIGN = 16, 17, 18  # purpose fields of the stream
_SURE = 700.0  # a log-likelihood ratio of outcomes that only one side has


def density_of(release: Release) -> Noise:
    if release.density is None:
        raise UserError(f"a release of kind {release.kind!r} has no density that an audit could draw from.")
    return release.density


def draw(noise: Noise, sizes: Floats, signs: Floats) -> Floats:
    """Noise from uniform numbers: |z| by the inverse of its distribution function, which ends at the bound."""
    whole = gammainc(1 / noise.shape, (noise.bound / noise.scale) ** noise.shape)  # 1 without a bound
    size = noise.scale * gammaincinv(1 / noise.shape, sizes * whole) ** (1 / noise.shape)
    return np.asarray(np.where(signs < 0.5, -size, size))


class Releases(Attack):
    """One coin per run: the record of heads moves each sum by the sensitivity when it is sampled."""

    attacked = "the mechanism alone (draws in one dimension; no model was trained)"
    description = "a record that moves every sum by the whole sensitivity, in or out by a coin"
    runs = 40_000
    at_once = 40_000

    def __init__(self, releases: Sequence[Release], stream: Callable[[int], Stream]):
        self._releases, self._stream = _entered(releases), stream
        drawn = [release for release in releases if release.sampling == "balls-and-bins"]
        self._passes = [list(lots) for _, lots in itertools.groupby(drawn, lambda lot: lot.pass_number)]
        self._replace_one = bool(releases) and releases[0].adjacency == "replace-one"
        for release in releases:
            density_of(release)
        if any(math.isinf(release.sensitivity) for release in releases):
            self.notes = (
                "Nothing enforces a bound here; the record moves sums by exactly what the noise is scaled to.",
            )

    def batch(self, number: int, runs: int) -> Coins:
        start = time.perf_counter()
        stream = self._stream(number)
        heads = flip(stream, 1, runs)[0]
        scores = np.zeros(runs)
        for k, release in enumerate(self._releases):
            noise, shift, away = self._moves(release)
            taken = uniform(stream, _PARTICIPATION, k, runs) < release.rate
            seen = self._seen(stream, k, noise, np.where(taken, np.where(heads, shift, away), 0.0))
            scores += self._evidence(noise, seen, shift, away, release.rate)
        made = len(self._releases)
        for choice, lots in enumerate(self._passes, start=made):
            scores += self._pass(stream, choice, made, lots, heads)
            made += len(lots)
        seconds = time.perf_counter() - start
        return Coins(scores, heads, np.arange(runs), runs, seconds, runs * made)

    def _moves(self, release: Release) -> tuple[Noise, float, float]:
        """(noise, how far heads moves a sum, how far tails does)."""
        finite = math.isfinite(release.sensitivity)
        shift = release.sensitivity if finite else 1.0  # the unit of planned events
        if (
            release.clipped == CLIPPED_LOT
        ):  # from one side of the ball, where the others hold it, to the opposite
            return density_of(release), 2 * shift, 0.0
        if self._replace_one:  # from one record's side to the other's
            apart = release.shift("replace-one") / 2 if finite else shift
            return density_of(release), apart, -apart
        return density_of(release), shift, 0.0

    @staticmethod
    def _seen(stream: Stream, k: int, noise: Noise, centre: Floats) -> Floats:
        runs = len(centre)
        return centre + draw(noise, uniform(stream, _SIZE, k, runs), uniform(stream, _SIGN, k, runs))

    def _pass(
        self, stream: Stream, choice: int, first: int, lots: Sequence[Release], heads: NDArray[np.bool_]
    ) -> Floats:
        """A pass of balls and bins: the record is in one lot, and nobody sees in which.

        log of 1/T Σ_t p_t(seen moved) / p_t(seen): of either side, and their difference.
        """
        runs, total = len(heads), round(1 / lots[0].rate)
        chosen = np.floor(uniform(stream, _PARTICIPATION, choice, runs) * total)
        hidden = math.log(total - len(lots)) if len(lots) < total else -math.inf
        one, other = np.full(runs, hidden), np.full(runs, hidden)
        for k, release in enumerate(lots, start=first):
            noise, shift, away = self._moves(release)
            inside = chosen == release.lot_number
            seen = self._seen(stream, k, noise, np.where(inside, np.where(heads, shift, away), 0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                still = noise.log_weight(seen)
                one = np.logaddexp(one, _finite(noise.log_weight(seen - shift) - still))
                other = np.logaddexp(other, _finite(noise.log_weight(seen - away) - still))
        return _finite(one - other).round(9)

    @staticmethod
    def _evidence(noise: Noise, seen: Floats, shift: float, away: float, rate: float) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            still = np.log1p(-rate) + noise.log_weight(seen)
            one, other = (
                np.logaddexp(still, math.log(rate) + noise.log_weight(seen - move)) for move in (shift, away)
            )
            # In the last digits a double remembers how it was made: an attack on floating point, not on the noise.
            return _finite(one - other).round(9)


def _finite(ratio: Floats) -> Floats:
    return np.asarray(np.clip(np.nan_to_num(ratio, nan=0.0, posinf=_SURE, neginf=-_SURE), -_SURE, _SURE))


def _entered(releases: Sequence[Release]) -> list[Release]:
    """Of the one-pass lots of a pass a record is in one for sure: here the one with the least noise."""
    passes: dict[int, Release] = {}
    for release in releases:
        if release.sampling == "one-pass":
            number = release.pass_number or 0
            if number not in passes or density_of(release).scale < density_of(passes[number]).scale:
                passes[number] = replace(release, rate=1.0)
    return [*(r for r in releases if not r.in_passes), *passes.values()]


def uniform(stream: Stream, purpose: int, step: int, count: int) -> Floats:
    """In (0, 1)."""
    words = stream.uniform_bits(purpose, 0, step, count)
    return np.asarray((words.astype(np.float64) + 0.5) / 2.0**64)
