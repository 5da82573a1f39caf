"""AdaD²P, Proposition 2. Where the paper writes 1/J we take the sampling rate."""

import math

from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.gaussian import check_delta, check_epsilon

_ADAD2P = "AdaD²P, Proposition 2, eq. (5)"


def adad2p(sigma: float, rounds: int, records: float, delta: float) -> Claim:
    """ε = c₂ sqrt(K log(1/δ)) / (J σ), with c₂ = 1; `records` is J, or 1/rate for mini-batches."""
    check_delta(delta)
    if sigma == 0:
        return Claim(math.inf, _ADAD2P, ("σ = 0: no noise at all",))
    epsilon = math.sqrt(rounds * math.log(1 / delta)) / (records * sigma)
    limit = rounds / records**2
    flags = (
        "constant not in the paper: c₂ = 1 is our convention",
        f"Proposition 2 asks for ε < c₁ K/J² = c₁ · {limit:.2g} and gives no c₁: it would have to exceed "
        f"{epsilon / limit:.2g} here",
    )
    return Claim(epsilon, _ADAD2P, flags)


def adad2p_sigma(epsilon: float, rounds: int, records: float, delta: float) -> float:
    """σ = c₂ sqrt(K log(1/δ)) / (J ε), with c₂ = 1."""
    check_delta(delta)
    check_epsilon(epsilon)
    return math.sqrt(rounds * math.log(1 / delta)) / (records * epsilon)
