"""Which of a node's records training leaves to a private evaluation: each by itself.

A record's part follows from a hash of what it holds, a person's from its id, and from the public seed: never from the
other records or from how many there are. So whoever is added or removed changes nobody else's part.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from gossamer.data.dataset import Dataset

Rows = npt.NDArray[np.int64]


def kept_out(
    dataset: Dataset, rows: Rows, part: float, seed: int, *, by_person: bool
) -> npt.NDArray[np.bool_]:
    """Of these training rows, those that are for evaluation: about this part of them."""
    key = f"kept out {seed}".encode()
    limit = int(part * 2**64)
    if by_person:
        assert dataset.person is not None
        whose, inverse = np.unique(dataset.person[rows], return_inverse=True)
        drawn = np.array([_hash(key, number.tobytes()) < limit for number in whose], dtype=bool)
        return drawn[inverse.reshape(-1)] if len(rows) else np.zeros(0, bool)
    x, y = dataset.x_train, dataset.y_train
    return np.array([_hash(key, x[row].tobytes() + y[row].tobytes()) < limit for row in rows], dtype=bool)


def _hash(key: bytes, content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "big")
