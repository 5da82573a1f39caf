"""Which steps a data set asks for, in the order in which they are done."""

from __future__ import annotations

from gossamer.data.source import Source
from gossamer.data.standardise import Moments
from gossamer.preprocess.base import Step
from gossamer.preprocess.class_weights import ClassWeights
from gossamer.preprocess.components import Components
from gossamer.preprocess.standardise import ByMoments, ByQuantiles


def steps_of(source: Source) -> tuple[Step, ...]:
    """Components come last: they are of the columns as they are then."""
    found: list[Step] = []
    if source.class_weights == "private":
        found.append(ClassWeights())
    if source.standardise is not None:
        found.append(ByMoments() if isinstance(source.standardise, Moments) else ByQuantiles())
    if source.private_components:
        found.append(Components())
    return tuple(found)
