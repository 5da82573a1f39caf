"""Every command, option, configuration key, kind and public name, one a line.

python -m tests.support.surface > tests/conformance/surface.txt

A change that loses or renames one of them shows as a changed line, and gets a sentence in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

import gossamer
from gossamer.cli import app
from gossamer.config.reference import tables


def commands(command: Any, path: str) -> Iterator[str]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")
    for parameter in command.params:
        yield f"{path} {' '.join(parameter.opts)}"


def configuration() -> Iterator[str]:
    for table in tables():
        yield from (f"key {table.name}.{option.name}" for option in table.options)
        for kind in table.kinds:
            for name in kind.names:
                yield f"kind {table.name} = {name}: {', '.join(option.name for option in kind.options)}"


def python() -> Iterator[str]:
    for name in gossamer.__all__:
        value = getattr(gossamer, name)
        parameters = inspect.signature(value).parameters.values()
        yield f"gossamer.{name}({', '.join(p.name for p in parameters)})"
        if inspect.isclass(value):
            yield from (f"gossamer.{name}.{member}" for member in dir(value) if not member.startswith("_"))


def surface() -> list[str]:
    return sorted({*commands(typer.main.get_command(app), "gossamer"), *configuration(), *python()})


if __name__ == "__main__":
    print("\n".join(surface()))
