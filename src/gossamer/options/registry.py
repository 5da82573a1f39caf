"""The one option system: a kind is a frozen dataclass, its fields are its options, and a registry knows it by name.

    clips: Registry[Clip] = Registry("privacy.clip")

    @clips.register("constant")
    class ConstantClip:
        \"\"\"Every record's vector is scaled down to the bound.\"\"\"

        bound: Annotated[float, Field(gt=0, description="largest norm of one record's vector")]

The same class is the configuration, `{ kind = "constant", bound = 1.0 }`, and the part itself or what makes it. In a
pydantic model `Annotated[Clip, clips]` is a field that reads such a table: types are checked strictly, unknown keys are
refused, and what is written out again has the `kind` and every field. Kinds are looked up when a table is read, so one
can be registered at any time before; those of other packages are: see `plugins`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from gossamer.errors import UserError
from gossamer.options.plugins import load_plugins
from gossamer.options.sentences import UNKNOWN_KEY, UNKNOWN_KIND, user_error

T = TypeVar("T")
C = TypeVar("C", bound=type)

_STRICT = ConfigDict(extra="forbid", strict=True)


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

    def __init__(
        self,
        table: str,
        *,
        names: Callable[[], Iterable[str]] = tuple,
        make: Callable[[str], type[Any]] | None = None,
    ):
        """`names`: of further kinds, which `make` makes dataclasses of when they are first asked for."""
        self.table = table
        self._kinds: dict[str, type[Any]] = {}
        self._names, self._make = names, make
        self._made: dict[str, type[Any]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Add a class under this name, which it gets as `kind`; it becomes a frozen dataclass, if it is none yet."""

        def add(cls: C) -> C:
            if name in self._kinds:
                raise ValueError(f"{self.table}.kind = {name!r} is registered twice")
            if "__dataclass_fields__" not in vars(cls):
                dataclasses.dataclass(frozen=True, kw_only=True)(cls)
            cls.kind = name  # type: ignore[attr-defined]
            self._kinds[name] = cls
            return cls

        return add

    def adopt(self, cls: type[Any]) -> str:
        """Register a class of the caller's own, unless it is known, and return its name: its `kind`, or the class's.

        Defined again, as in a notebook cell that is run twice, it replaces itself.
        """
        if not dataclasses.is_dataclass(cls):
            raise UserError(f"{cls.__name__} must be a dataclass: its fields are the options of {self.table}.")
        name = vars(cls).get("kind") or kind_name(cls.__name__)
        known = self._kinds.get(name)
        taken = name in self if known is None else not same_definition(known, cls)
        if taken:
            raise UserError(f"{self.table}.kind = {name!r} is there already; give {cls.__name__} another name.")
        self._kinds[name] = cls
        self._kinds[name].kind = name
        return str(name)

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(self._known())

    def __contains__(self, name: object) -> bool:
        return name in self._known() or name in list(self)

    def _known(self) -> list[str]:
        return list(dict.fromkeys([*self._names(), *self._kinds]))

    def __getitem__(self, name: str) -> type[Any]:
        if name not in self:
            raise KeyError(name)
        if self._make is None or name in self._kinds:
            return self._kinds[name]
        if name not in self._made:
            self._made[name] = made = self._make(name)
            made.kind = name
        return self._made[name]

    def forget(self, name: str) -> None:
        """Make the class of this name again when it is next asked for: what it was made of has changed."""
        self._made.pop(name, None)

    @property
    def kinds(self) -> dict[str, type[Any]]:
        """Every kind by its name."""
        return {name: self[name] for name in self}

    def parse(self, value: Any) -> T:
        """A table with a `kind`, or a part that is made already; a mistake is a UserError of one sentence."""
        try:
            parsed: T = TypeAdapter(Annotated[Any, self]).validate_python(value)
        except ValidationError as error:
            raise user_error(error, value, self.table) from None
        return parsed

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._read,
            serialization=core_schema.plain_serializer_function_ser_schema(self._write, info_arg=True),
        )

    def _read(self, value: Any) -> Any:
        table = isinstance(value, Mapping)
        name = value.get("kind") if table else getattr(value, "kind", None)
        if not isinstance(name, str) or name not in self or not (table or type(value) is self[name]):
            raise PydanticCustomError(UNKNOWN_KIND, "it can be {kinds}", {"kinds": ", ".join(self)})
        if not table:
            return value
        return _adapter(self[name]).validate_python({k: v for k, v in value.items() if k != "kind"})

    def _write(self, value: Any, info: Any) -> dict[str, Any]:
        written = _adapter(type(value)).dump_python(value, mode=info.mode, exclude_none=info.exclude_none)
        return {"kind": value.kind, **written}

    @staticmethod
    def options(value: Any) -> dict[str, Any]:
        """The options of a part as plain values, as a TOML file could hold them."""
        written: dict[str, Any] = _adapter(type(value)).dump_python(value)
        return written


def kind_name(class_name: str) -> str:
    """`MyClip` → my-clip."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", "-", class_name).strip("-").lower()


def same_definition(known: Any, cls: Any) -> bool:
    """Are they one class or function, perhaps defined twice?"""
    return known is cls or (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)


class Table:
    """`Annotated[SlowLinks, Table()]`: a frozen dataclass as a table without a kind, as strict as those with one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> Any:
            return _adapter(source).validate_python(value)

        def write(value: Any, info: Any) -> Any:
            return _adapter(source).dump_python(value, mode=info.mode, exclude_none=info.exclude_none)

        # In functions, since a union tries its members strictly, and a strict dataclass takes no dictionary.
        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True)
        )


class _Fields:
    """Unknown keys are refused with those that there are; the fields are checked strictly."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        source.__pydantic_config__ = _STRICT
        fields: Any = {**handler.resolve_ref_schema(handler(source)), "strict": False}
        return core_schema.no_info_before_validator_function(partial(_refuse_unknown, source), fields)


def _refuse_unknown(cls: type[Any], value: Any) -> Any:
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    for key in value if isinstance(value, Mapping) else ():
        if key not in known:
            error = PydanticCustomError(UNKNOWN_KEY, "it has {keys}", {"keys": ", ".join(known)})
            detail = InitErrorDetails(type=error, loc=(key,), input=value[key])
            raise ValidationError.from_exception_data(cls.__name__, [detail])
    return value


def _adapter(cls: Any) -> TypeAdapter[Any]:
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(Annotated[cls, _Fields()])
    return _ADAPTERS[cls]


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}  # they are costly to make


def options_of(kind: type[Any]) -> tuple[Option, ...]:
    """The options of a registered kind: its fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Option(
            field.name,
            hints[field.name],
            default_of(field),
            required=default_of(field) is dataclasses.MISSING,
            meaning=meaning_of(hints[field.name]),
        )
        for field in dataclasses.fields(kind)
        if field.init
    )


def default_of(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return factory() if factory is not dataclasses.MISSING else field.default


def meaning_of(annotation: Any) -> str:
    """The text in the annotation: `Annotated[int, "what it is"]`, or a `Field`'s description; empty if none."""
    for extra in getattr(annotation, "__metadata__", ()):
        text = extra if isinstance(extra, str) else getattr(extra, "description", None)
        if text:
            return str(text)
    return ""
