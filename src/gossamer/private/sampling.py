"""Which records of a node enter a draw. The choice is secret, so it comes from the same stream as the noise.

A lot is ragged over nodes: it is padded to the longest and masked, never truncated, for a truncated draw would no
longer be the one the accountant prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.kernels.noise import Stream

SAMPLING = 1  # the purpose field of the stream: sampling never shares a counter with noise


class Lot(NamedTuple):
    index: Tensor  # (m, B) int64, a record's place among its node's records
    mask: Tensor  # (m, B) bool, False where padded


class Sampler(Protocol):
    kind: ClassVar[str]

    def draw(self, stream: Stream, nodes: Sequence[int], sizes: Sequence[int], step: int) -> Lot: ...


@dataclass(frozen=True)
class PoissonSampler:
    """Every record by an independent coin of probability q_i.

    The threshold is rounded down to 32 bits: the true rate is at most the stated one, on the safe side.
    """

    rates: Sequence[float]  # per hosted node
    kind: ClassVar[str] = "poisson"

    def draw(self, stream: Stream, nodes: Sequence[int], sizes: Sequence[int], step: int) -> Lot:
        chosen = []
        for node, size, rate in zip(nodes, sizes, self.rates, strict=True):
            coins = stream.uniform_bits(SAMPLING, node, step, size)
            chosen.append(np.flatnonzero(coins.astype(np.uint64) < np.uint64(int(rate * 2**32))))
        return _pad(chosen)


@dataclass(frozen=True)
class FixedSizeSampler:
    """A uniform subset of fixed size, without replacement."""

    lots: Sequence[int]  # per hosted node
    kind: ClassVar[str] = "fixed-size"

    def draw(self, stream: Stream, nodes: Sequence[int], sizes: Sequence[int], step: int) -> Lot:
        chosen = []
        for node, size, lot in zip(nodes, sizes, self.lots, strict=True):
            if lot > size:
                raise ValueError(f"node {node} holds {size} records and cannot give a lot of {lot}")
            # The smallest of 64-bit keys: two equal keys would bias the subset by less than 2⁻⁴⁰.
            words = stream.uniform_bits(SAMPLING, node, step, 2 * size).astype(np.uint64)
            keys = (words[:size] << np.uint64(32)) | words[size:]
            chosen.append(np.sort(np.argpartition(keys, lot - 1)[:lot]))
        return _pad(chosen)


@dataclass(frozen=True)
class FullSampler:
    """All records of the node."""

    kind: ClassVar[str] = "full"

    def draw(self, stream: Stream, nodes: Sequence[int], sizes: Sequence[int], step: int) -> Lot:
        return _pad([np.arange(size) for size in sizes])


def _pad(chosen: list[np.ndarray]) -> Lot:
    longest = max((len(c) for c in chosen), default=0)
    index = np.zeros((len(chosen), longest), dtype=np.int64)
    mask = np.arange(longest)[None, :] < np.array([len(c) for c in chosen])[:, None]
    if longest:
        index[mask] = np.concatenate(chosen)
    return Lot(torch.from_numpy(index), torch.from_numpy(mask))
