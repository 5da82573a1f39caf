"""`check_noise`: is there as much noise as the ledger will say?"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.accounting.releases import Release
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Constant
from gossamer.mechanism.noise import Levels, Mechanism, NoiseKind, Participation
from gossamer.testing.quadratics import require

Floats = NDArray[np.float64]
NODES, DIMENSION = 4, 20_000
SHARE = 0.03  # of the noise, that an estimate from so many numbers may be off
PART = Participation("poisson", 0.1, "add-remove")


def check_noise(noise: NoiseKind, *, end: float = math.inf) -> None:
    """Raise an AssertionError, with what is to be fixed, unless as much noise is added as its releases state.

    `noise` is a kind with its options, as a configuration would make it; `end` is where truncated noise ends, in units
    of its scale. What is drawn is measured: against the noise of each node that is left to someone who sees all the
    other sums, where it is Gaussian, and by how it is spread where it has another density.

    >>> from gossamer.mechanism.noise.gaussian import Gaussian
    >>> from gossamer.testing import check_noise
    >>> check_noise(Gaussian())
    """
    name, among = type(noise).__name__, noise.for_node_count(NODES)
    for multiplier, bound in ((1.0, 1.0), (4.0, 0.5)):
        levels = Levels(torch.full((NODES,), multiplier, dtype=torch.float64), Constant(1.0))
        own = among.make(levels, np.full(NODES, end))
        own = own.agree(range(NODES), lambda texts: texts, "check", seeded=True)
        stated = _stated(name, among, own, multiplier, bound, end)
        drawn = _drawn(own, 0, multiplier, bound)
        require(
            np.array_equal(drawn, _drawn(own, 0, multiplier, bound)),
            f"{name} draws from elsewhere than the stream it is given; take its noise from the stream, by node and "
            "number of the draw, or no seeded run can be repeated.",
        )
        _as_much(name, among, drawn, stated)
        _fresh(name, drawn, _drawn(own, 1, multiplier, bound))
        with suppress(UserError):  # a noise may need all nodes
            others = _drawn(own, 0, multiplier, bound, numbers=8, idle=1)[:-1]
            idle = f"{name} adds nothing once one node's budget is spent; the others still need noise."
            require(not own.adds or others.any(), idle)


def _stated(name: str, noise: NoiseKind, own: Mechanism, multiplier: float, bound: float, end: float) -> list[Release]:
    """Return what each node's ledger would say; what was planned may not be more."""
    written = [own.release(i, multiplier, bound, DIMENSION, PART, enforced=True) for i in range(NODES)]
    planned = noise.release(multiplier * bound, bound, DIMENSION, PART, end).noise_multiplier
    least = min(one.noise_multiplier for one in written)
    what = f"{name} plans {planned:.4g} sensitivities of noise and puts {least:.4g} on file"
    agree = "its `release` and its mechanism's must agree"
    require(least >= planned * (1 - 1e-9), f"{what}; {agree}.")
    return written


def _drawn(
    own: Mechanism, k: int, multiplier: float, bound: float, *, numbers: int = DIMENSION, idle: int = 0
) -> Floats:
    """(nodes, numbers) the noise of draw k; the last `idle` nodes have spent their budget."""
    sums = torch.zeros(NODES, numbers)
    scales = {
        "multiplier": torch.full((NODES,), multiplier, dtype=torch.float64),
        "bound": torch.full((NODES,), bound, dtype=torch.float64),
    }
    own.add(Stream.seeded(7), np.arange(NODES), k, sums, **scales, active=torch.arange(NODES) < NODES - idle)
    return np.asarray(sums.double().numpy())


def _as_much(name: str, noise: NoiseKind, drawn: Floats, stated: list[Release]) -> None:
    if not noise.adds:
        return
    if noise.gaussian:
        for i, (release, left) in enumerate(zip(stated, _left_to_the_others(drawn), strict=True)):
            sigma = release.noise_multiplier * release.sensitivity
            require(
                left >= sigma * (1 - SHARE),
                f"{name}: node {i}'s release states noise of {sigma:.4g}, and {left:.4g} is left of it to who sees the "
                "other nodes' sums; state what is left, or add more.",
            )
        return
    for i, release in enumerate(stated):
        density = release.density
        require(density, f"{name}: a release of kind {release.kind!r} has no density to measure against.")
        assert density is not None
        for share in (0.25, 1.0, 2.0):
            width = share * density.scale
            most = float(density.between(np.array(-width), np.array(width)))
            inside = float((np.abs(drawn[i]) <= width).mean())
            require(
                inside <= most + 5 * math.sqrt(most * (1 - most) / DIMENSION) + 1e-9,
                f"{name}: {inside:.1%} of node {i}'s noise lies within ±{width:.4g}, where its release states "
                f"{most:.1%}; it adds less than it states.",
            )


def _left_to_the_others(drawn: Floats) -> Floats:
    """(nodes,) the standard deviation of each node's noise, given all the others'."""
    covariance = drawn @ drawn.T / drawn.shape[1]
    scale = np.sqrt(np.diag(covariance))
    if not scale.all():
        return np.zeros_like(scale)
    correlation = covariance / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(correlation)
    precision = (vectors**2 / np.maximum(values, 1e-12)).sum(1)
    return np.asarray(scale / np.sqrt(precision))


def _fresh(name: str, first: Floats, second: Floats) -> None:
    """No noise twice."""
    size = np.sqrt((first**2).mean(1) * (second**2).mean(1))
    together = np.abs((first * second).mean(1)) / np.where(size > 0, size, 1.0)
    what = f"{name} uses noise of one draw again in the next; two sums that are subtracted cancel it"
    require(together.max() <= SHARE, f"{what}: take it from the stream by the number of the draw.")
