"""Without-replacement SGD with a deep-Q controller: Lemma 4 and the classical Gaussian (Theorem 1, eq. 4)."""

import math
from collections.abc import Sequence

from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.gaussian import check_delta, check_epsilon
from gossamer.errors import UserError


def lemma4_sensitivity(
    learning_rates: Sequence[float], lipschitz: float, batch: int, smoothness: float
) -> tuple[float, tuple[str, ...]]:
    """max 2 η_k L / b over the steps since the node's last global write, and the flags of its conditions.

    This is the distance under *replacing* a record: an event's sensitivity is half of it.
    """
    largest = max(learning_rates)
    flags: tuple[str, ...] = ()
    if largest > 1 / (2 * smoothness):
        flags = (
            f"Lemma 4 needs every η ≤ 1/(2μ) = {1 / (2 * smoothness):.3g}; the largest is {largest:.3g}",
        )
    return 2 * largest * lipschitz / batch, flags


def classical_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """σ = Δ sqrt(2 ln(1.25/δ)) / ε; its proof ends at ε = 1, so beyond it is refused."""
    check_delta(delta)
    check_epsilon(epsilon)
    if epsilon > 1:
        raise UserError(
            f"epsilon = {epsilon} is outside the classical Gaussian mechanism, which holds for ε ≤ 1: "
            "calibrate with the numerical accountant instead"
        )
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def without_replacement(sigma: float, sensitivity: float, delta: float, visits: float = 1) -> Claim:
    """ε = Δ sqrt(2 ln(1.25/δ)) / σ of the worst release; each record enters one release only.

    With several visits of a record, as in the paper's baseline: each is (ε/v, δ/v), and they are added up.
    """
    check_delta(delta)
    epsilon = math.inf
    if sigma > 0:
        epsilon = visits * sensitivity * math.sqrt(2 * math.log(1.25 * visits / delta)) / sigma
    flags: tuple[str, ...] = ()
    flags += ("Theorem 1 holds for ε < 1 only",) if epsilon / visits >= 1 - 1e-12 else ()
    if visits > 1:
        flags += (f"a record's {visits:g} visits are added up, (ε/{visits:g}, δ/{visits:g}) each",)
    return Claim(epsilon, "Without-replacement SGD with deep-Q, Theorems 1 and 2, Lemma 4", flags)
