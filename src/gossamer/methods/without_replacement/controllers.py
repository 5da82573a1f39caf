"""Who decides, each turn, whether a node writes the shared model: one small interface, the simple controllers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class Controller(Protocol):
    def choose(self, seen: Any, t: int) -> Tensor:
        """(m, C) bool: True writes the shared model. `seen` has `state` (m, C, k) and `reward` (m, C) or None."""
        ...


def place(seen: Any) -> tuple[slice, int]:
    """Which nodes of how many: what is drawn for all nodes is the same wherever they are hosted."""
    hosted, of = getattr(seen, "hosted", range(0)), getattr(seen, "of", 0)
    nodes = seen.state.shape[0]
    return (slice(hosted.start, hosted.stop), of) if of else (slice(0, nodes), nodes)


@dataclass(frozen=True)
class Always:
    """Fully collaborative (`write`), or every node for itself."""

    write: bool

    def choose(self, seen: Any, t: int) -> Tensor:
        return torch.full(seen.state.shape[:2], self.write)


class PassEnd:
    """Write once a pass, at its last turn: by Lemma 4 with the noise of one step for all lots of the pass."""

    def choose(self, seen: Any, t: int) -> Tensor:
        last: Tensor = seen.closing[:, None].expand(seen.state.shape[:2])
        return last


@dataclass(frozen=True)
class Coin:
    """Write with a fixed probability, all classes of a node together: a public coin, so the choice reveals nothing."""

    probability: float
    seed: int

    def choose(self, seen: Any, t: int) -> Tensor:
        nodes, classes = seen.state.shape[:2]
        hosted, of = place(seen)
        heads = np.random.default_rng([self.seed, 0xC014, t]).random(of) < self.probability
        return torch.from_numpy(heads[hosted])[:, None].expand(nodes, classes)


@dataclass(frozen=True)
class Threshold:
    """Ask the others where the last loss seen (minus the reward) is above a threshold; the first turn writes."""

    threshold: float

    def choose(self, seen: Any, t: int) -> Tensor:
        if seen.reward is None:
            return torch.ones(seen.state.shape[:2], dtype=torch.bool)
        above: Tensor = -seen.reward > self.threshold
        return above
