"""The tables and kinds of a configuration with their options: `gossamer recipes --schema`, docs/configuration.md."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gossamer.config.schema import RunConfig
from gossamer.options.registry import Option, Registry, Table, meaning_of, options_of

INTRODUCTION = """\
# Configuration

A run is a TOML file (`gossamer run my.toml`), a recipe (`gossamer recipes`) or a dictionary (`gossamer.run({...})`).
Any value can be changed with `--set key=value`. Layers, later ones win: the method's preset, the file, its `[paper]`
table in paper mode, `--set`. Types are strict and unknown keys are refused. Files that a TOML file names are relative
to its own folder; those of `--set` and of a dictionary, to the working directory. The run directory's `config.toml`
names every value that was used.

`rounds`, `algorithm.lr` and `privacy.clip` may be `"auto"`: numbers then follow from the budget and public sizes,
see [frontier](frontier.md). Steps of `data.transform`, and the pieces around a method (`momentum`, `mixes`,
`tail_average`, `final_gossip`, `privacy.centre`) are described there too; the options of `without-replacement` in
[without-replacement.md](without-replacement.md), `runtime` in [processes.md](processes.md).

A table with a `kind` has the options of that kind and no others; those that all its kinds have stand first.
`gossamer recipes --schema` prints this page.
"""
NO_TABLE = "Keys outside of all tables"
WIDTH = 118


@dataclass(frozen=True)
class KindEntry:
    """One kind; or several that have the same meaning and options."""

    names: tuple[str, ...]
    meaning: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class TableEntry:
    """One table: the options of every kind, or all that there are, and the kinds."""

    name: str  # dotted; empty: the keys outside of all tables
    meaning: str
    options: tuple[Option, ...]
    kinds: tuple[KindEntry, ...] = ()


def tables() -> list[TableEntry]:
    """Every table of a configuration, each before those inside it."""
    entries: dict[str, TableEntry] = {}
    for entry in _of_model("", RunConfig, ""):
        entries.setdefault(entry.name, entry)
    return list(entries.values())


def as_data() -> list[dict[str, Any]]:
    """The same for programs."""

    def option(o: Option) -> dict[str, Any]:
        rest = {} if o.required else {"default": default_words(o.default)}
        return {
            "name": o.name,
            "type": type_words(o.type),
            "required": o.required,
            **rest,
            "meaning": o.meaning,
        }

    return [
        {
            "table": entry.name,
            "meaning": entry.meaning,
            "options": [option(o) for o in entry.options],
            "kinds": [
                {"kind": name, "meaning": kind.meaning, "options": [option(o) for o in kind.options]}
                for kind in entry.kinds
                for name in kind.names
            ],
        }
        for entry in tables()
    ]


def as_markdown() -> str:
    """docs/configuration.md, and what `gossamer recipes --schema` prints."""
    lines = [INTRODUCTION]
    for entry in tables():
        lines += [f"## `[{entry.name}]`" if entry.name else f"## {NO_TABLE}", ""]
        if entry.name and entry.meaning:
            lines += [*_wrapped(f"{entry.meaning[0].upper()}{entry.meaning[1:].rstrip('.')}."), ""]
        lines += [line for option in entry.options for line in _bullet(option)]
        lines += [""] if entry.options else []
        for kind in entry.kinds:
            names = ", ".join(f"`{name}`" for name in kind.names)
            lines += _wrapped(": ".join(filter(None, [f"**{names}**", kind.meaning])))
            lines += ["", *(line for option in kind.options for line in _bullet(option))]
            lines += [""] if kind.options else []
    return "\n".join(lines).rstrip() + "\n"


def _of_model(name: str, model: type[BaseModel], meaning: str) -> Iterator[TableEntry]:
    hints = get_type_hints(model, include_extras=True)
    options, inside = [], []
    for key, info in model.model_fields.items():
        default = info.get_default(call_default_factory=True)
        meaning_of_key = info.description or meaning_of(hints[key])
        required = default is PydanticUndefined
        option = Option(key, hints[key], None if required else default, required, meaning_of_key)
        below = list(_inside(f"{name}.{key}".lstrip("."), hints[key], meaning_of_key))
        inside += below
        words = any(get_origin(bare(member)) is Literal for member in members(hints[key]))
        if not below or words:  # a word or a table
            options.append(option)
    yield TableEntry(name, meaning or _first_sentence(model), tuple(options))
    yield from inside


def _inside(name: str, annotation: Any, meaning: str) -> Iterator[TableEntry]:
    """The tables that a value of this type can be."""
    types_of_value = members(annotation)
    noted = [extra for part in (annotation, *types_of_value) for extra in extras(part)]
    registry = next((extra for extra in noted if isinstance(extra, Registry)), None)
    plain = [bare(member) for member in types_of_value]
    if registry is not None:
        if registry.table == name:  # elsewhere it is described already
            yield from _of_kinds(name, meaning, registry.kinds)
    else:
        for member in plain:
            if get_origin(member) is dict:  # tables by names that the user chooses
                yield from _inside(f"{name}.NAME", get_args(member)[1], meaning)
            elif is_model(member):
                yield from _of_model(name, member, meaning)
            elif dataclasses.is_dataclass(member) and isinstance(member, type):
                yield TableEntry(name, _first_sentence(member), options_of(member))


def _of_kinds(name: str, meaning: str, kinds: dict[str, type[Any]]) -> Iterator[TableEntry]:
    kinds = dict(sorted(kinds.items()))  # modules register theirs in the order in which they are imported
    options = {kind: options_of(cls) for kind, cls in kinds.items()}
    first, *others = ({_facts(option) for option in its} for its in options.values())
    common = first.intersection(*others) if others else set()
    entries: dict[Any, KindEntry] = {}
    for kind, cls in kinds.items():
        own = tuple(option for option in options[kind] if _facts(option) not in common)
        entry = KindEntry((kind,), _first_sentence(cls), own)
        alike = (entry.meaning or kind, *map(_facts, own))  # without a meaning, a kind is like no other
        if alike in entries:
            entry = dataclasses.replace(entry, names=(*entries[alike].names, kind))
        entries[alike] = entry
    every = next(iter(options.values()))
    yield TableEntry(name, meaning, tuple(o for o in every if _facts(o) in common), tuple(entries.values()))
    for option in {o.name: o for its in options.values() for o in its}.values():
        yield from _inside(f"{name}.{option.name}", option.type, option.meaning)


def _facts(option: Option) -> tuple[str, ...]:
    return option.name, _value_words(option), option.meaning


def _first_sentence(cls: type[Any]) -> str:
    """The first paragraph of its own docstring."""
    doc = cls.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.split("\n\n")[0].split())


def _value_words(option: Option) -> str:
    rest = "; must be set" if option.required else f" ({default_words(option.default)})"
    return f"{type_words(option.type)}{rest}"


def _bullet(option: Option) -> list[str]:
    meaning = f": {option.meaning}" if option.meaning else ""
    return _wrapped(f"- `{option.name}` = {_value_words(option)}{meaning}", "  ")


def _wrapped(text: str, rest: str = "") -> list[str]:
    wrapper = textwrap.TextWrapper(WIDTH, "", rest, break_on_hyphens=False, break_long_words=False)
    return wrapper.wrap(text)


def type_words(annotation: Any) -> str:
    """Describe in plain words what a value may be."""
    return " or ".join(dict.fromkeys(_alternatives(annotation, ())))


def default_words(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "kind"):
        return str(value.kind)
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _alternatives(annotation: Any, limits: Sequence[Any]) -> Iterator[str]:
    noted = extras(annotation)
    for extra in noted:
        if isinstance(extra, Registry):
            yield f"table with a kind, see [{extra.table}]"
            return
        if isinstance(extra, Table):
            yield "table"
            return
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0], [*_limits(noted), *limits])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            if member is not type(None):
                yield from _alternatives(member, limits)
    elif get_origin(annotation) is Literal:
        *choices, last = map(str, get_args(annotation))
        yield f"{', '.join(choices)} or {last}" if choices else last
    elif get_origin(annotation) is list:
        inner = type_words(get_args(annotation)[0])
        for one in ("number", "text", "list"):
            inner = re.sub(rf"\b{one}\b", f"{one}s", inner)
        yield "list" if inner == "anything" or " or " in inner else f"list of {inner}"
    elif get_origin(annotation) is dict or is_model(annotation):
        yield "table"
    else:
        names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
        yield " ".join([names.get(annotation, "anything"), *_limit_words(limits)])


def _limits(extras: Sequence[Any]) -> list[Any]:
    return [limit for extra in extras for limit in (extra, *getattr(extra, "metadata", ()))]


def _limit_words(limits: Sequence[Any]) -> Iterator[str]:
    """Limits as far as a person cares: what only keeps numbers finite is left out."""
    for limit in limits:
        for key, word in (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "up to")):
            value = getattr(limit, key, None)
            if isinstance(value, int | float) and abs(value) < 1e9:
                yield f"{word} {0 if 0 < value < 1e-9 else value:g}"


def extras(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ()) if get_origin(annotation) is Annotated else ()


def members(annotation: Any) -> list[Any]:
    """The types of a union, without None; of anything else itself."""
    plain = bare(annotation)
    if get_origin(plain) in (Union, types.UnionType):
        return [m for member in get_args(plain) if member is not type(None) for m in members(member)]
    return [annotation]


def bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
