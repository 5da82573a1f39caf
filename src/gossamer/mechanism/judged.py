"""What a node's kept-out records say of its final model, added up, with noise: one release per node, after all draws.

Every record has a row of numbers. Whatever a model made of the record, the row is brought into the unit ball here, and
a person counts by the mean of its records' rows, which lies in the ball too: adding or removing what is protected moves
the sum by at most 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gossamer.accounting.releases import Event
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import JUDGED
from gossamer.mechanism.reader import Book, Records
from gossamer.mechanism.summaries import noised, unit_weights


def private_judgement(
    rows_of: Callable[[int], Tensor],
    records: Records,
    nodes: Sequence[int],
    *,
    event: Event,
    stream: Stream,
    book: Book,
) -> Tensor:
    """(m, k) the hosted nodes' noised sums; `rows_of(i)`: (J, k) of node i's records, asked once all is on file."""
    book.write([(nodes, event)])
    released = []
    for i, node in enumerate(nodes):
        total = judged_sum(rows_of(i), unit_weights(records, i))
        released.append(noised(total, stream, JUDGED, node, 0, event.release.noise_multiplier))
    return torch.stack(released)


def judged_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """(k,) of rows (J, k) in double precision; `weights` (J,): of what is protected they are at most 1 together."""
    exact = rows.detach().double().cpu()
    exact = torch.where(torch.isfinite(exact).all(1, keepdim=True), exact, 0.0)
    # By the largest entry first: squares of very large and very small ones leave double precision.
    largest = exact.abs().amax(1, keepdim=True).clamp_min(1.0)
    norms = (exact / largest).norm(dim=1, keepdim=True) * largest
    total: Tensor = weights @ (exact / norms.clamp_min(1.0))
    return total
