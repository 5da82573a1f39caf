"""How far rounding may carry a clipped sum away from the sum in real numbers, and what keeps it from going further.

A release pays for sensitivity C (1 + EXCESS), C the clip. That covers the floats that are added up, by two facts.

**What a record adds does not depend on the other records.** Lots are computed in calls of one shape, `room` for a
public expected lot, and in such a call a record's gradient is the same to the last bit wherever it stands and whoever
else is there: `steady` looks whether that is so, on this processor, for this module and this shape.

**The sum of n terms is off by little.** Let u be float32's unit roundoff and v_b what record b adds, w_b ‖v_b‖ ≤ C. In
whatever order n terms are added up, their sum is off by at most γ_n Σ_b w_b S_b, where S_b is the sum of the norms of
the terms that record b consists of: ‖v_b‖ where that is one, at most 64 ‖v_b‖ where it is many (`layers.gram_sum` clips
it so). Hence a lot of B records is off by at most n u B C, or 64 times that, and the sums of two neighbouring lots
differ by at most C and twice as much. Where twice as much would be more than EXCESS (`fits`), terms are added up in
double precision, and slices of a lot always are: only the last rounding to float32 is left, u B C.
"""

from __future__ import annotations

import math

EXCESS = 0.0025
_U = 2.0**-24  # float32's unit roundoff


def fits(terms: int, lot: int, cancelling: float = 1.0) -> bool:
    """May sums of so many terms be added up in float32, for lots of so many records?"""
    return 2 * (terms + 4) * _U * lot * cancelling <= EXCESS


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
