"""One pass in which every record draws its lot by itself: balls and bins.

The mechanism: a record chooses one of T lots, uniformly, independently of all others, in secret, anew in every pass.
Lot t releases a sum in which the record has a part of norm at most C if it is in there, with Gaussian noise σ_t. With
μ_t = C/σ_t and add/remove of one record the pair

    P = 1/T Σ_t N(μ_t e_t, I)    against    Q = N(0, I)    in as many dimensions as lots were released

dominates in both directions, also if each lot's sums depend on everything released before. Proof: fix the other
records and their lots; they have the same law on both sides, so whoever simulates may draw them. Let z_t be coordinate
t of an outcome of P or Q. Once the first t − 1 releases are made, the part v_t that the record would have in lot t is
known, with c = |v_t|/C ≤ 1. Release

    others' sum + σ_t (c z_t + √(1 − c²) g) v_t/|v_t| + σ_t G,      g ~ N(0, 1), G ~ N(0, I) orthogonal to v_t.

Under Q that is the others' sum with noise N(0, σ_t² I); under P, given that the record fell into lot s, it is moved by
v_t if t = s: exactly the two mechanisms, step by step. So what everyone sees is post-processing of z. ∎ It needs that
nothing else depends on the record's lot, and σ_t that were fixed before the pass. A lot that was not released has no
coordinate: the record may have fallen there, and its term in P is Q itself.

What it costs: dP/dQ = 1/T Σ_t X_t with independent X_t = exp(μ_t z_t − μ_t²/2), and 1 for a lot that was not released.
`convex_order` bounds the law of such a sum from above and below, for both directions at once.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gossamer.accounting.convex_order import POINTS, ROUNDING, Law, add, log_normals
from gossamer.accounting.pairs import TAIL, Cells

PIECES = 64  # for moments; points between two of them are taken together
LARGEST_SHIFT = 6.0  # of a lot: beyond it, one record outweighs all that the others could hide


@dataclass(frozen=True)
class BallsAndBinsPair:
    """`shifts`: (μ, how many lots were released with it); `lots`: T; `points`: of the laws that bound it."""

    shifts: tuple[tuple[float, int], ...]
    lots: int
    points: int = POINTS

    def __post_init__(self) -> None:
        if not 0 < sum(count for _, count in self.shifts) <= self.lots:
            raise ValueError(f"{self.shifts} are not some of {self.lots} lots")

    @property
    def both_ways(self) -> bool:
        return True

    @property
    def distance(self) -> float:
        """The law from above is larger in the convex order, and so is its total variation."""
        law = self._ratio(upper=True)
        return float(law.q @ np.maximum(law.x - 1, 0)) + law.excess + ROUNDING

    def extent(self, tail: float = TAIL) -> float:
        law = self._ratio(upper=True)
        return float(np.ptp(np.log(law.x[law.x > 0])))

    def pieces(self, tail: float = TAIL) -> Cells:
        """Neighbouring points together, between the least and the largest loss of each."""
        law = self._ratio(upper=True)
        order = np.argsort(law.x)
        x, q = law.x[order], law.q[order]
        some = x > 0
        loss, p, q_some = np.log(x[some]), (q * x)[some], q[some]
        starts = np.unique(np.linspace(0, max(len(loss) - 1, 0), PIECES + 1)[:-1].astype(int))
        return Cells(
            loss[starts],
            np.maximum.reduceat(loss, starts),
            np.add.reduceat(p, starts),
            np.add.reduceat(q_some, starts),
            p_only=law.excess,
            q_only=float(q[~some].sum()),
            p_cut=ROUNDING,
            q_cut=ROUNDING,
        )

    def cells(self, h: float, *, centred: bool, tail: float = TAIL) -> Cells:
        law = self._ratio(upper=not centred)
        some = law.x > 0
        x, q = law.x[some], law.q[some]
        loss = np.log(x) / h
        first = np.rint(loss) if centred else np.floor(loss)
        return Cells(
            first.astype(np.int64),
            first.astype(np.int64) + (not centred),
            q * x,
            q,
            p_only=law.excess,
            q_only=float(law.q[~some].sum()),
            p_cut=0.0 if centred else ROUNDING,
            q_cut=0.0 if centred else ROUNDING,
        )

    def _ratio(self, *, upper: bool) -> Law:
        return ratio(self.shifts, self.lots, upper, self.points)


def ratio(shifts: tuple[tuple[float, int], ...], lots: int, upper: bool, points: int = POINTS) -> Law:
    """The law of dP/dQ under Q, from above or from below in the convex order."""
    total = _sum(shifts, upper, points)
    hidden = lots - sum(count for _, count in shifts)
    return Law((total.x + hidden) / lots, total.q, total.excess / lots)


@lru_cache(maxsize=2048)
def _sum(shifts: tuple[tuple[float, int], ...], upper: bool, points: int) -> Law:
    """Σ X_t over the released lots; a pass and its beginning share what they have in common."""
    last = log_normals(*shifts[-1], upper=upper, points=points)
    if len(shifts) == 1:
        return last
    return add(_sum(shifts[:-1], upper, points), last, upper=upper, points=points)
