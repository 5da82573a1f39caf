"""DP-DSGD, DP-DSGT and DP-DiNNO: Rényi accounting of the sampled Gaussian."""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.gaussian import check_delta, check_epsilon, root

# Orders nearer to 1 matter only for ε in the tens, and their series does not converge for little noise.
RDP_ORDERS = (*(1.5 + k / 10 for k in range(45)), *range(6, 64), 80, 96, 128, 192, 256, 512, 1024)
_RDP = "DP-DSGD/DSGT/DiNNO, sampled Gaussian mechanism by RDP (Mironov, Talwar, Zhang 2019)"


@lru_cache(maxsize=4096)  # a tenth of a second each, and every seed of a table asks for the same ones
def rdp_sampled_gaussian(noise_multiplier: float, rate: float, steps: int, delta: float) -> Claim:
    """ε by the Rényi accountant of the Poisson-sampled Gaussian: what these papers print."""
    import dp_accounting
    from dp_accounting import rdp

    check_delta(delta)
    flag = "the formula is for add/remove neighbours; the paper defines privacy by replacing one record"
    if noise_multiplier == 0:
        return Claim(math.inf, _RDP, (flag, "σ = 0: no noise at all"))
    accountant = rdp.RdpAccountant(RDP_ORDERS)
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    sampled = event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event)
    with _quiet(
        "absl"
    ):  # an order whose series does not converge is left out, which is safe and no news to a user
        accountant.compose(sampled, steps)
    return Claim(float(accountant.get_epsilon(delta)), _RDP, (flag,))


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@lru_cache(maxsize=4096)
def rdp_noise_multiplier(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The σ / C at which `rdp_sampled_gaussian` gives ε."""
    check_epsilon(epsilon)

    def excess(log_sigma: float) -> float:
        found = rdp_sampled_gaussian(math.exp(log_sigma), rate, steps, delta).epsilon
        assert found is not None
        return found - epsilon

    low, high = 0.0, 0.0
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    if low == high:
        return 1.0
    return math.exp(root(excess, low, high, xtol=1e-9))
