"""What an ε protects: one record, one person with all of its records, or one node with all of its.

The accountants price sums of which one unit moves each by the sensitivity at most. What a unit is, is decided where
records are clipped; here it has its name, and what runs that protect different units have in common.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gossamer.accounting.observers import UNIT

RECORD, PERSON, NODE = "record", "person", "node"


@dataclass(frozen=True)
class Unit:
    """`column`: the one that says whose a record is."""

    kind: str = RECORD
    column: str | None = None

    finest: ClassVar[tuple[str, ...]] = (RECORD, PERSON, NODE)

    @property
    def many(self) -> str:
        """What is counted and drawn: records, persons, nodes."""
        return f"{self.kind}s"

    def words(self, nodes: int = 1) -> str:
        """In a certificate, where a record or person may be on so many nodes."""
        if self.kind == NODE:
            return "one node, with all of its records"
        if self.kind == PERSON:
            where = "at one node" if nodes == 1 else f"at up to {nodes} nodes"
            return f"one person (column {self.column}) {where}"
        return UNIT if nodes == 1 else f"one record, wherever copies of it are: on up to {nodes} nodes"


ONE_RECORD = Unit()


def kind_of(words: str) -> str:
    """The kind of unit that these words are of."""
    return next((kind for kind in (PERSON, NODE) if words.startswith(f"one {kind}")), RECORD)


def in_common(units: Iterable[str]) -> tuple[str, bool]:
    """(words of a unit that all these runs protect, whether changing it may exchange what one of them protects).

    Whoever protects a person protects each of its records, but a record more or less is another person in place of the
    one before: such a change is a replacement, under either adjacency. Of persons by different columns only records
    are common.
    """
    found = sorted(set(units), key=lambda words: Unit.finest.index(kind_of(words)))
    if len(found) == 1:
        return found[0], False
    finest = kind_of(found[0])
    if finest == PERSON and sum(kind_of(words) == PERSON for words in found) > 1:
        return UNIT, True
    return found[0] if finest != RECORD else UNIT, True
