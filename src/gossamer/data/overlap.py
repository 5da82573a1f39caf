"""Do two sets share records, more than chance explains? A "public" set with private records in it is not public.

Rows are compared by their features: as float32, byte by byte. Copies that were rescaled, rounded or otherwise changed
are not found.

Tables of a few small whole numbers share rows by chance. How many, the training rows tell by their own repetitions
(Good and Turing): with N_r different rows that occur r times among n, a new row is one of those with probability about
(r + 1) N_{r+1} / n. Where no row occurs twice in either set, the columns tell: of numbers with a few digits a single
shared row is one too many. A set of few different rows, all of them common, tells nothing: there a copy passes unless
it is the whole set.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import numpy as np

from gossamer.data.dataset import Array
from gossamer.data.mapped import blocks

COMMON = 6  # a row that occurs so often is one that many have
CERTAIN = 1e-3  # fewer equal rows than this are none
SAMPLE = 101  # values whose digits are counted


def share_rows(ours: Array, theirs: Array) -> bool:
    """Are rows of one set in the other beyond chance? What it says of private records is for this machine alone."""
    if not len(ours) or not len(theirs) or ours.shape[1:] != theirs.shape[1:]:
        return False
    (own, times), (other, other_times) = _counted(ours), _counted(theirs)
    _, here, there = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    same = len(here) == len(own) == len(other) and np.array_equal(times[here], other_times[there])
    if not len(here) or same:
        return same
    if max(times.max(), other_times.max()) == 1:
        expected = _by_chance(ours, theirs)
        return len(here) > expected + 4 * math.sqrt(expected)
    both = times[here], other_times[there]
    return _beyond_chance(times, *both, len(theirs)) or _beyond_chance(other_times, *both[::-1], len(ours))


def _beyond_chance(seen: Array, common: Array, new: Array, drawn: int) -> bool:
    """Of all rows seen r times, does the other set hold more than new rows of the same origin would?

    `seen`: how often each different row of a set occurs; `common`: those that the other has too, there `new` times.
    """
    times = Counter(seen.tolist())
    rows = int(seen.sum())
    for r in times:
        hits = int(new[common == r].sum())
        # Four deviations above what was counted, and above what is expected then.
        repeated = times[r + 1] + 4 * math.sqrt(times[r + 1] + 1)
        expected = drawn * (r + 1) * repeated / rows
        if r < COMMON and hits > expected + 4 * math.sqrt(expected):
            return True
    return False


def _by_chance(ours: Array, theirs: Array) -> float:
    """How many rows may be equal by chance, where no row repeats within a set: what their columns tell.

    Rows are equal with no more than the least of their columns' probabilities; the others' count with their root, which
    leaves room for columns that go together.
    """
    across, within = len(ours) * len(theirs), (len(ours) ** 2 + len(theirs) ** 2) / 2
    most = (
        9 * across / within
    )  # with more to be expected, one in eight thousand would have no equal rows within
    logs: list[float] = []
    columns = (x.reshape(len(x), -1).T for x in (ours, theirs))
    for one, other in zip(*columns, strict=True):
        logs.append(math.log(_equal(_plain(one), _plain(other))))
        least = min(logs)
        found = across * math.exp(least + (sum(logs) - least) / 2)
        if found < CERTAIN:
            return 0.0
    return min(found, most)


def _equal(one: Array, other: Array) -> float:
    """The probability that two rows have the same value here: as it happens within the sets, or by the value's digits.

    Numbers that never repeat have at least a grid: that of the digits they are written with.
    """
    pairs = repeats = 0.0
    for values in (one, other):
        counts = np.unique(values, return_counts=True)[1].astype(float)
        repeats += float((counts * (counts - 1)).sum())
        pairs += len(values) * (len(values) - 1)
    if repeats or pairs == 0:
        return min(1.0, (repeats + 2) / max(pairs, 1.0))
    both = np.concatenate([one, other])
    digits = sorted(len(np.format_float_positional(v, trim="-").partition(".")[2]) for v in both[:SAMPLE])
    spread = float(np.quantile(both, 0.9) - np.quantile(both, 0.1))
    return min(2 / pairs, 10 * 10.0 ** -digits[len(digits) // 2] / max(spread, 1e-30), 1.0)


def _plain(x: Array) -> Array:
    # Adding 0 makes −0 the same as 0.
    return np.ascontiguousarray(x, dtype="<f4") + np.float32(0)


def _counted(x: Array) -> tuple[Array, Array]:
    """The different rows by their hashes, and how often each occurs; the rows themselves are never all in memory."""
    hashes = np.empty(len(x), dtype="S16")
    for part in blocks(x):
        hashes[part] = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in _plain(x[part])]
    return np.unique(hashes, return_counts=True)
