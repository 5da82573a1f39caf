"""What sites did, computed again from the steps they recorded: plain arithmetic over all of them, no protocol.

Given the same released gradients (seeded noise) it gives the same models up to rounding, or a parcel was added twice,
lost or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tests.support.traced import Step

Array = NDArray[np.float64]
Moved = Callable[[str, int, Array], Array]  # (site, round, model) → the step −η g that is added to x


def replay_push_sum(
    start: Mapping[str, Array], steps: Mapping[str, Sequence[Step]], moved: Moved
) -> tuple[dict[str, Array], dict[str, float]]:
    """(x, w) of every site after all of its steps, one exchange a round.

    A step is computed as soon as the parcels it added were made, so sites may be at different rounds; a site's steps
    that were repeated after a crash stand in the list once, as they ended.
    """
    x, w = {site: value.astype(float) for site, value in start.items()}, dict.fromkeys(start, 1.0)
    done = dict.fromkeys(start, 0)
    split: dict[str, tuple[Array, float]] = {}
    parcels: dict[tuple[str, str, int], tuple[Array, float]] = {}
    while any(done[site] < len(steps[site]) for site in start):
        before = dict(done)
        for site in start:
            if done[site] == len(steps[site]):
                continue
            step = steps[site][done[site]]
            if site not in split:
                own, weight = x[site] + moved(site, step.place.round, x[site] / w[site]), w[site]
                kept, left = own.copy(), weight
                for to, (number, share) in step.sent.items():
                    parcels[site, to, number] = share * own, share * weight
                    kept, left = kept - share * own, left - share * weight
                split[site] = kept, left
            back = iter(step.returned_from)
            due = [(s, next(back) if s == site else site, number) for s, _, number in step.added]
            if all(key in parcels for key in due):
                kept, left = split.pop(site)
                for key in due:
                    content, weight = parcels.pop(key)  # once: whoever adds it again finds nothing
                    kept, left = kept + content, left + weight
                x[site], w[site] = kept, left
                done[site] += 1
        if done == before and all(site in split or done[site] == len(steps[site]) for site in start):
            raise ValueError("a step added a parcel that nobody made, or that was added before")
    return x, w
