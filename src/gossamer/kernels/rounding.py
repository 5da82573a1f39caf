"""How far rounding may carry a clipped sum away from the sum in real numbers, and what keeps it from going further.

A release pays for sensitivity C (1 + EXCESS), C the clip. That covers the floats that are added up, by two facts.

**What a record adds does not depend on the other records.** Lots are computed in calls of one shape, `room` for a
public expected lot, and in such a call a record's gradient is the same to the last bit wherever it stands and whoever
else is there: `steady` looks whether that is so, on this processor, for this module and this shape.

**The sum of n terms is off by little.** Let u be float32's unit roundoff, w_b the weight of record b and S_b the sum
of the norms of the terms that it consists of. In whatever order n terms are added up, their sum is off by at most
γ_n Σ_b w_b S_b, γ_n = n u / (1 − n u), so that the sums of two neighbouring lots of at most B records differ by the
clip and at most 2 B γ_n max w_b S_b, which shall not be more than EXCESS C.

- Where a record is one term, S_b is its norm and w_b S_b ≤ C: `share` ≤ 1 is enough (`fits`).
- Where it is many, they may cancel. Then `share` times S_b is a lower bound of the norm by which a record is weighed,
  so that γ_n w_b S_b stays as it must whatever the terms do. B is public, and so is n: a weight depends on nothing but
  its record. A share above `MOST_SHARE` could clip records whose terms do not cancel.

Layers of both kinds together must stay within EXCESS: see `beside`. Where float32 would not do, fewer terms are added
up at a time (`records_at_a_time`), or all in double precision, as always for lots of more than B. What was added up
in parts is added in double precision; for the last roundings to float32, and that of w_b v_b, γ has four terms more.
"""

from __future__ import annotations

import math

EXCESS = 0.0025
MOST_SHARE = 0.4  # a ResNet-18's gradients: √Σ S_b² over its layers is 1.3 norms, 2.5 at its first weights
_U = 2.0**-24  # float32's unit roundoff


def share(terms: int, lot: float) -> float:
    """2 B γ / EXCESS: what part of S_b a record's norm must be, if so many terms are added up in float32."""
    lost = (terms + 4) * _U
    return 2 * lost / (1 - lost) * lot / EXCESS if lost < 1 else math.inf


def fits(terms: int, lot: float) -> bool:
    """May sums of so many terms, of which each is a record, be added up in float32, for lots of so many?"""
    return share(terms, lot) <= 1


def beside(count: int, lot: int) -> float:
    """B for layers whose terms cancel, next to others that add up so many records: what these leave of EXCESS.

    Layers have coordinates of their own, so that what they are off by adds up by squares.
    """
    for terms in (max(count, 9 + count // 8), 9 + count // 8):
        if (others := share(terms, lot)) < 1:
            return lot / math.sqrt(1 - others**2)
    return lot


def records_at_a_time(positions: int, lot: float) -> int:
    """Of how many records float32 may add up the terms, so many of each, which may cancel; 0: of none."""
    lost = MOST_SHARE * EXCESS / (2 * lot)
    return max(0, int(lost / (1 + lost) / _U) - 4) // positions


def most(places: int) -> int:
    """Records of a lot that has so many `places` (`room`), above which sums are added up in double precision alone."""
    return math.ceil(1.25 * places)


def room(lot: float, *, varies: bool) -> int:
    """Places for an expected lot, seldom too few where lots vary: a public number, that no lot has a say in."""
    most = math.ceil(lot + (3 * math.sqrt(lot) if varies else 0))
    step = 4 if most <= 16 else 32
    return -(-most // step) * step


def even(records: int, nodes: int) -> int:
    """As many records or more, so that calls have a multiple of 32: torch computes what is left of 32 another way."""
    unit = 32 // math.gcd(32, nodes)
    return -(-records // unit) * unit


def excess(lot: float) -> float:
    """What a release pays for besides the clip C, as a share of it.

    A lot of thousands is not a quarter longer than `room` says, but with a probability below e⁻¹⁰⁰.
    """
    return max(EXCESS, 4 * _U * 1.25 * room(lot, varies=True))
