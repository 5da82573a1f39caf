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
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

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

    def __init__(self, table: str):
        self.table = table
        self._kinds: dict[str, type[Any]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Add a frozen dataclass under this name; the class gets it as `kind`."""

        def add(made: C) -> C:
            if not dataclasses.is_dataclass(made):
                raise TypeError(f"{made.__name__} must be a dataclass: its fields are the options")
            if name in self._kinds:
                raise ValueError(f"{self.table}.kind = {name!r} is registered twice")
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
        parsed: T = TypeAdapter(Annotated[Any, self]).validate_python(value)
        return parsed

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: self._choice(name, made, handler) for name, made in self._kinds.items()}
        union = core_schema.tagged_union_schema(choices, discriminator=self._name_of)
        return core_schema.no_info_before_validator_function(self._known, union)

    def _choice(self, name: str, made: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        def options(value: Any) -> Any:
            return {k: v for k, v in value.items() if k != "kind"} if isinstance(value, Mapping) else value

        def with_kind(value: Any, write: Callable[[Any], Any]) -> dict[str, Any]:
            return {"kind": name, **write(value)}

        # The options are checked strictly; "strictly" of the dataclass itself would mean that no table can become one.
        schema: Any = handler.resolve_ref_schema(handler.generate_schema(made))
        schema = {**schema, "strict": False, "ref": f"{schema.get('ref', name)}:{self.table}"}
        return core_schema.no_info_before_validator_function(
            options,
            schema,
            serialization=core_schema.wrap_serializer_function_ser_schema(with_kind),
        )

    def _name_of(self, value: Any) -> str | None:
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
        return kind if isinstance(kind, str) else None

    def _known(self, value: Any) -> Any:
        if self._name_of(value) not in self._kinds:
            raise PydanticCustomError(UNKNOWN_KIND, "it can be {kinds}", {"kinds": ", ".join(self._kinds)})
        return value


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
