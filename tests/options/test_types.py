"""Types of single values: what is let in at their ends."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.options import types

TAKES: dict[str, tuple[list[Any], list[Any]]] = {
    "Count": ([1, 10**9], [0, -1, 1.0, True, "1"]),
    "Positive": ([1e-300, 1e11], [0.0, -1.0, 1e12, math.inf, math.nan]),
    "Size": ([1e-11, 1e11], [0.0, 1e-12, 1e12, math.inf, math.nan]),
    "AccountName": (["cardiology patients"], ["", "a/b", "."]),
    "Ratio": ([1.0, 1e6], [0.999, 1.1e6, math.nan]),
    "Epsilon": ([1e-300, 1.0, 1000.0], [0.0, 1000.1, 9e11, math.inf, math.nan]),
    "Delta": ([1e-300, 0.1], [0.0, 0.11, 0.49, 1.0, math.nan]),
    "NonNegative": ([0.0, 1e300], [-1e-300, math.inf, math.nan]),
    "Fraction": ([0.0, 1.0], [-1e-9, 1.001, math.nan]),
    "Share": ([1e-300, 1.0], [0.0, 1.001, math.nan]),
    "Finite": ([-1e300, 0.0], [math.inf, -math.inf, math.nan]),
}


@pytest.mark.parametrize("name", TAKES)
def test_what_is_taken_and_what_is_not(name: str) -> None:
    adapter = TypeAdapter(getattr(types, name))
    taken, refused = TAKES[name]
    for value in taken:
        assert adapter.validate_python(value) == value
    for value in refused:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_every_type_is_covered() -> None:
    imported = {
        "Annotated",
        "Field",
        "annotations",
        "LEAST_BOUND",
        "MOST_BOUND",
        "MOST_EPSILON",
        "MOST_DELTA",
        "AfterValidator",
        "unicodedata",
    }
    assert {name for name in vars(types) if not name.startswith("_")} - imported == set(TAKES)
