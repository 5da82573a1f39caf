"""What one release was: a class for each kind, with exactly what it needs.

A release answers what accountants ask: why nothing can be proven about it (`unpriceable`), its dominating `pair` and
how many of them it counts as, how it is priced `by_norm` if it is a vector. A new kind is one class. `seen_by` says
what it is to an observer: noise that each node draws for itself is the same to all, noise that nodes share is not.
"""

from gossamer.accounting.releases.base import (
    ADJACENCIES,
    CLIPPED_LOT,
    FIRST_DRAW,
    KINDS,
    SAMPLINGS,
    ByNorm,
    Event,
    Noised,
    Release,
    collate,
    constants_of,
    of_several_runs,
    on_several_nodes,
    release,
)
from gossamer.accounting.releases.kinds import (
    Gaussian,
    GeneralisedGaussian,
    Laplace,
    OneSided,
    OwnNormGaussian,
    RawDecision,
    TruncatedGaussian,
    TruncatedLaplace,
    Unnoised,
)
from gossamer.accounting.releases.pairwise import Pairwise, remember_listed

__all__ = [
    "ADJACENCIES",
    "CLIPPED_LOT",
    "FIRST_DRAW",
    "KINDS",
    "SAMPLINGS",
    "ByNorm",
    "Event",
    "Gaussian",
    "GeneralisedGaussian",
    "Laplace",
    "Noised",
    "OneSided",
    "OwnNormGaussian",
    "Pairwise",
    "RawDecision",
    "Release",
    "TruncatedGaussian",
    "TruncatedLaplace",
    "Unnoised",
    "collate",
    "constants_of",
    "of_several_runs",
    "on_several_nodes",
    "release",
    "remember_listed",
]
