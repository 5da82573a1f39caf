"""The one option system: a kind is a frozen dataclass, its fields are its options, and a registry knows it by name.

    clips: Registry[Clip] = Registry("privacy.clip")

    @clips.register("constant")
    @dataclass(frozen=True, kw_only=True)
    class ConstantClip:
        \"\"\"Every record's vector is scaled down to the bound.\"\"\"

        bound: Annotated[float, Field(gt=0, description="largest norm of one record's vector")]

The same class is the configuration, `{ kind = "constant", bound = 1.0 }`, and the part itself or what makes it. In a
pydantic model `Annotated[Clip, clips]` is a field that reads such a table: types are checked strictly, unknown keys are
refused, and what is written out again has the `kind` and every field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticCustomError, SchemaSerializer, SchemaValidator, core_schema

T = TypeVar("T")
C = TypeVar("C", bound=type)

UNKNOWN_KIND = "unknown_kind"  # the error's type, for whoever puts it into a sentence


@dataclasses.dataclass(frozen=True)
class Option:
    """One setting of a kind, as `gossamer recipes --schema` prints it; `default` counts only if not `required`."""

    name: str
    type: Any
    default: Any
    required: bool
    meaning: str


class Registry(Generic[T]):
    """The kinds of one table of the configuration, in the order in which they were registered."""

    def __init__(self, name: str):
        self.name = name
        self._kinds: dict[str, type[Any]] = {}
        self._readers: dict[str, _Reader] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Add a frozen dataclass under this name; the class gets it as `kind`."""

        def add(made: C) -> C:
            if not dataclasses.is_dataclass(made):
                raise TypeError(f"{made.__name__} must be a dataclass: its fields are the options")
            if name in self._kinds:
                raise ValueError(f"{self.name}.kind = {name!r} is registered twice")
            made.kind = name  # type: ignore[attr-defined]
            made.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[attr-defined]
            self._kinds[name] = made
            return made

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def __getitem__(self, name: str) -> type[Any]:
        return self._kinds[name]

    def parse(self, value: Any) -> T:
        """A table with a `kind`, or a part that is made already; raises pydantic's ValidationError."""
        if not isinstance(value, Mapping) and type(value) in self._kinds.values():
            return cast(T, value)
        kind = value.get("kind") if isinstance(value, Mapping) else None
        if not isinstance(kind, str) or kind not in self._kinds:
            raise PydanticCustomError(UNKNOWN_KIND, "it can be {kinds}", {"kinds": ", ".join(self._kinds)})
        options = {key: option for key, option in value.items() if key != "kind"}
        if kind not in self._readers:
            self._readers[kind] = _Reader(self._kinds[kind])
        return cast(T, self._readers[kind].validate_python(options))

    def table(self, part: T) -> dict[str, Any]:
        """The table that `parse` would make the same part of."""
        kind = str(getattr(part, "kind", ""))
        if kind not in self._readers:
            self._readers[kind] = _Reader(type(part))
        return {"kind": kind, **self._readers[kind].to_python(part)}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Looked up when a table is read, so that a kind registered later, in a user's own file, is known too."""
        write = core_schema.plain_serializer_function_ser_schema(self.table)
        return core_schema.no_info_plain_validator_function(self.parse, serialization=write)


class _Reader:
    """Options → a dataclass and back. Options are read strictly, the table leniently: else none could become one."""

    def __init__(self, made: type[Any]):
        schema = TypeAdapter(made).core_schema
        inner: Any = schema["schema"] if schema["type"] == "definitions" else schema
        inner["strict"] = False
        self._validator, self._serializer = SchemaValidator(schema), SchemaSerializer(schema)
        self.validate_python = self._validator.validate_python

    def to_python(self, part: Any) -> dict[str, Any]:
        return dict(self._serializer.to_python(part))


def options_of(kind: type[Any]) -> list[Option]:
    """The options of a registered kind: its fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        Option(
            field.name,
            hints[field.name],
            default_of(field),
            required=default_of(field) is dataclasses.MISSING,
            meaning=meaning_of(hints[field.name]),
        )
        for field in dataclasses.fields(kind)
        if field.init
    ]


def default_of(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return made() if made is not dataclasses.MISSING else field.default


def meaning_of(annotation: Any) -> str:
    """The description in the annotation, as `Field(description=…)` gives it; empty if there is none."""
    for extra in getattr(annotation, "__metadata__", ()):
        if getattr(extra, "description", None):
            return str(extra.description)
    return ""
