from __future__ import annotations

import pytest

from gossamer.accounting.observers import NODE, PERSON, RECORD, UNIT, Unit, in_common, kind_of

PATIENT = Unit(PERSON, "patient")


def test_units_in_words() -> None:
    assert Unit().words() == UNIT
    assert Unit().words(3) == "one record, wherever copies of it are: on up to 3 nodes"
    assert PATIENT.words() == "one person (column patient) at one node"
    assert PATIENT.words(2) == "one person (column patient) at up to 2 nodes"
    assert Unit(NODE).words() == "one node, with all of its records"
    assert (Unit().kind, PATIENT.kind) == ("record", "person")


@pytest.mark.parametrize(("unit", "kind"), [(Unit(), RECORD), (PATIENT, PERSON), (Unit(NODE), NODE)])
@pytest.mark.parametrize("nodes", [1, 3])
def test_words_say_their_kind(unit: Unit, kind: str, nodes: int) -> None:
    assert kind_of(unit.words(nodes)) == kind


def test_what_runs_have_in_common_is_the_finest_unit_and_a_replacement() -> None:
    person, node = PATIENT.words(), Unit(NODE).words()
    assert in_common([person, person]) == (person, False)
    assert in_common([UNIT, person]) == (UNIT, True)
    assert in_common([node, person]) == (person, True)
    assert in_common([person, Unit(PERSON, "customer").words()]) == (UNIT, True)
    assert in_common([PATIENT.words(2), person])[1]
