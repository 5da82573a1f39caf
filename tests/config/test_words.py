"""Types and defaults in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from gossamer.config.reference import bare, default_words, extras, is_model, members, type_words
from gossamer.options.registry import Registry, Table
from gossamer.options.types import Count, Fraction, Positive, Share, Size

shapes: Registry[Any] = Registry("shape")


@shapes.register("round")
@dataclass(frozen=True)
class Round:
    pass


class Model(BaseModel):
    x: int = 1


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "whole number"),
        (Count, "whole number from 1"),
        (Positive, "number above 0"),  # the upper end only keeps it finite
        (Size, "number above 0"),
        (Fraction, "number from 0 up to 1"),
        (Share | None, "number above 0 up to 1"),
        (Annotated[Count, Field(description="so many")], "whole number from 1"),
        (bool | Literal["outside"], "true or false or outside"),
        (Literal["a", "b", "c"], "a, b or c"),
        (list[str], "list of texts"),
        (list[list[float]], "list of lists of numbers"),
        (list[int | str], "list"),
        (list[Any], "list"),
        (Count | list[Count] | None, "whole number from 1 or list of whole numbers from 1"),
        (int | Annotated[int, Field()], "whole number"),  # said once
        (dict[str, int], "table"),
        (Model, "table"),
        (Annotated[Model, Table()], "table"),
        (Annotated[Any, shapes], "table with a kind, see [shape]"),
        (Any, "anything"),
    ],
)
def test_what_a_value_may_be(annotation: Any, words: str) -> None:
    assert type_words(annotation) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not set"),
        (True, "true"),
        (False, "false"),
        (1.0, "1"),
        (1e-5, "1e-05"),
        (3, "3"),
        ("relu", "relu"),
        ([8, 16], "[8, 16]"),
        (Round(), "round"),
        (Model(), "as below"),
    ],
)
def test_defaults(value: Any, words: str) -> None:
    assert default_words(value) == words


def test_unions_are_taken_apart() -> None:
    assert members(int | None | Annotated[str | float, "note"]) == [int, str, float]
    assert members(int) == [int]
    assert bare(Annotated[int, "note"]) is int
    assert extras(Annotated[int, "note"]) == ("note",)
    assert extras(int) == ()
    assert is_model(Model)
    assert not is_model(Round)
