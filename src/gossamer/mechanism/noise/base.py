"""What a noise mechanism is: an object that adds noise to sums, and says in the ledger's words what it released.

A *kind* is what a configuration names, before it has a size; `make` gives the mechanism of a run. `add` gets the sums
of all hosted nodes at once, so that noise may be correlated over nodes; independent noise is the case in which it is
not. `release` says what one node's sum is worth to whoever sees it. Nobody else knows which noise it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.schedules import Schedule

# Purpose fields of the stream: no two uses ever share a counter.
NOISE, SAMPLING, COUNT, LATTICE, COINS, MASK, SUMMARY, JUDGED, RANDOM_LAYERS = range(9)
ROUND_UP = 1 + 2**-20  # float32 noise is scaled up by this: never less of it than the ledger says

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Participation:
    """How records take part in a draw: what a release says besides its noise."""

    sampling: str
    rate: float
    adjacency: str
    pass_number: int | None = None  # which pass over the data a lot belongs to
    lot_number: int | None = None  # which lot of the pass, where that is priced
    clipped: str | None = None  # "lot" where the sum was clipped as a whole, and no record by itself

    @property
    def common(self) -> dict[str, Any]:
        """The fields that all releases have."""
        return {
            "sampling": self.sampling,
            "rate": self.rate,
            "adjacency": self.adjacency,
            "pass_number": self.pass_number,
            "lot_number": self.lot_number,
            "clipped": self.clipped,
        }


@dataclass(frozen=True)
class Levels:
    """Noise multipliers, std over sensitivity, of the hosted nodes: factor_i · shape(k)."""

    factor: Tensor  # (m,)
    shape: Schedule

    def __call__(self, k: int) -> Tensor:
        return self.factor * self.shape(k)

    def repeated(self, times: int) -> Levels:
        """Every node `times` over, as an audit's many runs side by side need it."""
        return Levels(self.factor.repeat_interleave(times), self.shape)


class Mechanism(Protocol):
    """The noise of a run on the sums of its hosted nodes."""

    @property
    def levels(self) -> Levels: ...

    @property
    def adds(self) -> bool:
        """Is there noise at all?"""
        ...

    @property
    def scale_is_public(self) -> bool:
        """Can everyone compute its size? Not where it follows the records."""
        ...

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        """(m,) how far one record can move the released sum, if its contribution has norm at most `bound`."""
        ...

    def release(
        self,
        i: int,
        multiplier: float,
        sensitivity: float,
        dimension: int,
        part: Participation,
        *,
        enforced: bool,
    ) -> Release:
        """What hosted node i gives out in a draw at this noise multiplier, for the ledger."""
        ...

    def apart(self, i: int) -> float | None:
        """What else node i's releases depend on: nodes that are alike in all share one line of the ledger."""
        ...

    def agree(
        self, nodes: Sequence[int], join: Callable[[list[str]], list[str]], context: str, *, seeded: bool
    ) -> Self:
        """With what it must agree upon with the other processes before the first draw; most noises: nothing.

        `join` gives everyone one public text of each node, `context` names the run and which start of it this is.
        """
        ...

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        """What can be drawn of a draw's noise before its scale is known; None if nothing."""
        ...

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        *,
        multiplier: Tensor,
        bound: Tensor,
        active: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        """Add noise of `multiplier` (m,) times the sensitivity to the sums (m, d) of the active nodes, in place.

        `bound` (m,) is what no record's contribution exceeds; `ready` is what `ahead` gave, and is used up.
        """
        ...

    def repeated(self, times: int) -> Mechanism: ...


class NoiseKind(Protocol):
    """A noise as it is configured, before it has a size. Its density is ∝ exp(−(|z|/s)^exponent), truncated or not."""

    kind: ClassVar[str]
    release_kind: ClassVar[str]  # of its releases, as the ledger has it

    @property
    def adds(self) -> bool: ...

    @property
    def gaussian(self) -> bool:
        """Does it compose as Gaussians do?"""
        ...

    @property
    def truncated(self) -> bool: ...

    @property
    def bound(self) -> float | None:
        """Where it ends in units of its scale, if that is given."""
        ...

    @property
    def exponent(self) -> float: ...

    @property
    def scale(self) -> float:
        """s/σ: releases state a Gaussian's standard deviation, and the scale of every other density."""
        ...

    @property
    def cancels(self) -> bool:
        """Does some of it cancel in the mean over nodes? Then all must add the same to what they divide."""
        ...

    @property
    def observer(self) -> Observer:
        """Whom its releases are planned to hold against."""
        ...

    @property
    def all_alike(self) -> bool:
        """Does its covariance know how many nodes are honest, and nothing else of them?"""
        ...

    @property
    def kept(self) -> float:
        """What a release hides a record behind, over the noise that its node adds: more than 1 if others help."""
        ...

    def covariance(self, honest: NDArray[np.int64]) -> Floats | None:
        """Over these nodes in units of each one's own, to who knows all that the others do; None: each its own."""
        ...

    @property
    def header(self) -> dict[str, Any]:
        """What the first line of a ledger must say for its releases to be priced by it alone."""
        ...

    @property
    def without_proof(self) -> str | None:
        """Why nothing can be proven about it whatever its size, in half a sentence."""
        ...

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        """One release of scale `sigma` that ends at `end` times it (∞: nowhere)."""
        ...

    def among(self, nodes: int) -> NoiseKind:
        """The same in a run of so many nodes: what noise correlated over nodes hides depends on their number."""
        ...

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        """`ends` (m,) are where each node's noise ends, in units of its scale."""
        ...
