"""Releases of disjoint lots, sorted into passes: of each, what it may be counted as.

* One-pass lots: a record is in one lot of each pass, so a pass costs its worst release, each priced as a full batch.
* Balls and bins: the same at least. If all its lots have Gaussian noise, being in a secret one of them hides a record,
  and a pass is one pair (`balls_and_bins`), under add/remove.

That a record is in one lot only is believed of a ledger whose lots have numbers, each once a pass and below the number
of lots. Where they do not, every release counts as a full batch of its own.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gossamer.accounting.balls_and_bins import LARGEST_SHIFT, BallsAndBinsPair
from gossamer.accounting.convex_order import POINTS
from gossamer.accounting.releases import Release

DISTINCT = 20  # different μ that are priced as they are; where there are more, they are rounded up
STEP, MOST_STEPS = 1.02, 200  # to powers of this, but to no more of them
ROUGH_STEP, ROUGH_POINTS = 1.1, 300  # where a rough figure will do
ROUGH = 0.05  # a tolerance from which on it will
Counted = tuple[Release, int]


@dataclass
class Sorted:
    alone: list[Counted] = field(default_factory=list)  # all of them count
    disjoint: list[list[Release]] = field(default_factory=list)  # passes: one of each counts
    hidden: list[BallsAndBinsPair] = field(default_factory=list)  # passes whose secret lots count
    rounded: bool = False  # were μ rounded up?


def sort(counted: Sequence[Counted], *, amplified: bool, tolerance: float = 0.01) -> Sorted:
    """`amplified`: with the secrecy of balls-and-bins lots, for Gaussian noise under add/remove.

    `tolerance`: how far above the true figure one may come; the figure holds whatever it is.
    """
    found = Sorted()
    one_pass: dict[int, list[Release]] = {}
    drawn: dict[int | None, list[Counted]] = {}
    for release, count in counted:
        if release.sampling == "one-pass":
            one_pass.setdefault(release.pass_number or 0, []).append(release)
        elif release.sampling == "balls-and-bins":
            drawn.setdefault(release.pass_number, []).append((release, count))
        else:
            found.alone.append((release, count))
    found.disjoint.extend(one_pass.values())
    secret: list[list[Release]] = []
    for number, lots in drawn.items():
        if number is None or not _is_a_pass(lots):
            found.alone.extend(lots)
        elif amplified and all(_hides(lot) for lot, _ in lots):
            secret.append([lot for lot, _ in lots])
        else:
            found.disjoint.append([lot for lot, _ in lots])
    _hide(found, secret, rough=tolerance >= ROUGH)
    return found


def hidden_lots(releases: Iterable[Release]) -> bool:
    """May the secrecy of lots lower the price of some of them?"""
    return any(release.sampling == "balls-and-bins" and _hides(release) for release in releases)


def lots_of(release: Release) -> int | None:
    """T of a balls-and-bins lot; None where its rate is not one in so many."""
    lots = round(1 / release.rate)
    return lots if math.isclose(lots * release.rate, 1, rel_tol=1e-9) else None


def _is_a_pass(counted: Sequence[Counted]) -> bool:
    lots = {lots_of(release) for release, _ in counted}
    numbers = [release.lot_number for release, count in counted for _ in range(count)]
    (most,) = lots if len(lots) == 1 else (None,)
    return (
        most is not None
        and len(set(numbers)) == len(numbers)
        and all(number is not None and 0 <= number < most for number in numbers)
    )


def _hides(release: Release) -> bool:
    mu = release.pair("add-remove")
    return isinstance(mu, float) and mu <= LARGEST_SHIFT and release.rate < 1


def _hide(found: Sorted, passes: Sequence[Sequence[Release]], *, rough: bool) -> None:
    """Each pass as a pair."""
    mus = [[_mu(lot) for lot in lots] for lots in passes]
    known = {mu for own in mus for mu in own}
    found.rounded = len(known) > DISTINCT
    level = _levels(known, ROUGH_STEP if rough else STEP) if found.rounded else {mu: mu for mu in known}
    for own, lots in zip(mus, passes, strict=True):
        counts = Counter(level[mu] for mu in own)
        total = lots_of(lots[0])
        assert total is not None
        points = ROUGH_POINTS if rough else POINTS
        found.hidden.append(BallsAndBinsPair(tuple(sorted(counts.items())), total, points))


def _levels(known: set[float], step: float) -> dict[float, float]:
    """μ → a power of `step` no smaller, but never above the largest: less noise dominates more.

    The same powers whatever else there is, so that the laws of one prefix or one scale serve the others.
    """
    largest = max(known)
    step = max(step, (largest / min(known)) ** (1 / MOST_STEPS))
    up = {mu: step ** math.ceil(math.log(mu) / math.log(step)) for mu in known}
    return {mu: max(mu, min(power, largest)) for mu, power in up.items()}


def _mu(lot: Release) -> float:
    """A little more than μ, by 2⁻³⁴ of it at most: the same noise on other sensitivities differs in the last digits."""
    mu = lot.pair("add-remove")
    assert isinstance(mu, float)
    mantissa, exponent = math.frexp(mu)
    return math.ldexp(round(mantissa * 2**36) + 1, exponent - 36)
