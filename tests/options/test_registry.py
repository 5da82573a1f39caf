"""A kind is a dataclass: read from a table, written back as one, refused with a place."""

import json
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tests.support.refusals import expect_refusal

from gossamer.options.registry import Registry, Table, options_of
from gossamer.options.sentences import UNKNOWN_KEY, UNKNOWN_KIND

clips: Registry[Any] = Registry("privacy.clip")


@clips.register("constant")
@dataclass(frozen=True, kw_only=True)
class Constant:
    bound: Annotated[float, Field(gt=0, description="largest norm")]
    steps: list[int] = field(default_factory=list)


@clips.register("none")
@dataclass(frozen=True, kw_only=True)
class Nothing:
    pass


@dataclass(frozen=True, kw_only=True)
class Hour:
    hour: int


class Privacy(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    clip: Annotated[Any, clips] = Nothing()


def test_a_table_becomes_the_part_and_the_part_a_table() -> None:
    read = Privacy.model_validate({"clip": {"kind": "constant", "bound": 1}})
    assert read.clip == Constant(bound=1.0)
    assert read.clip.kind == "constant"
    assert read.model_dump() == {"clip": {"kind": "constant", "bound": 1.0, "steps": []}}
    assert Privacy.model_validate(read.model_dump()) == read
    assert Privacy.model_validate({"clip": Constant(bound=2.0)}).clip.bound == 2.0
    assert Privacy().model_dump() == {"clip": {"kind": "none"}}
    assert clips.parse({"kind": "none"}) == Nothing()


@pytest.mark.parametrize(
    ("table", "place", "error"),
    [
        ({"kind": "constant"}, ("bound",), "missing"),
        ({"kind": "constant", "bound": -1.0}, ("bound",), "greater_than"),
        ({"kind": "constant", "bound": "1"}, ("bound",), "float_type"),
        ({"kind": "constant", "bound": 1.0, "x": 2}, ("x",), UNKNOWN_KEY),
        ({"kind": "other"}, (), UNKNOWN_KIND),
        ({"bound": 1.0}, (), UNKNOWN_KIND),
        ({"kind": ["constant"]}, (), UNKNOWN_KIND),
        (3, (), UNKNOWN_KIND),
    ],
)
def test_a_mistake_is_refused_where_it_stands(table: Any, place: tuple[str, ...], error: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Privacy.model_validate({"clip": table})
    first = caught.value.errors()[0]
    assert first["type"] == error
    assert first["loc"][-len(place) :] == place if place else first["loc"] == ("clip",)


def test_options_say_name_default_and_meaning() -> None:
    bound, steps = options_of(Constant)
    assert (bound.name, bound.required, bound.meaning) == ("bound", True, "largest norm")
    assert (steps.default, steps.required, steps.meaning) == ([], False, "")


def test_a_name_is_registered_once_and_only_for_dataclasses() -> None:
    with pytest.raises(ValueError, match="twice"):
        clips.register("none")(Nothing)
    with pytest.raises(TypeError, match="dataclass"):
        clips.register("plain")(int)


def test_a_kind_registered_later_is_read_by_a_model_that_is_there_already() -> None:
    @clips.register("late")
    @dataclass(frozen=True, kw_only=True)
    class Late:
        """Late."""

        at: Annotated[Hour, Table(), Field(description="when")]

    assert Privacy.model_validate({"clip": {"kind": "late", "at": {"hour": 3}}}).clip == Late(at=Hour(hour=3))
    assert Privacy(clip=Late(at=Hour(hour=3))).model_dump() == {"clip": {"kind": "late", "at": {"hour": 3}}}


def test_kinds_are_made_when_they_are_asked_for() -> None:
    asked: list[str] = []

    def make(name: str) -> type[Any]:
        asked.append(name)
        return make_dataclass(name, [("x", int, 0)], frozen=True, kw_only=True)

    registry: Registry[Any] = Registry("t", names=lambda: ["a", "b"], make=make)
    assert list(registry) == ["a", "b"]
    assert asked == []
    assert registry.parse({"kind": "b", "x": 2}).x == 2
    assert registry.parse({"kind": "b"}).kind == "b"
    assert asked == ["b"]
    with expect_refusal(key="t.kind", value="c", names="b"):
        registry.parse({"kind": "c"})


def test_none_is_left_out_where_that_is_asked_for() -> None:
    @clips.register("perhaps")
    @dataclass(frozen=True, kw_only=True)
    class Perhaps:
        bound: float | None = None

    assert Privacy(clip=Perhaps()).model_dump(exclude_none=True) == {"clip": {"kind": "perhaps"}}
    assert json.loads(Privacy(clip=Perhaps()).model_dump_json()) == {"clip": {"kind": "perhaps", "bound": None}}
