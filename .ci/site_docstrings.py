"""Docstrings name arguments a line each, `records: (x, y) of arrays…`: on the site these become a list.

Examples, `>>> …` and what they print, become code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAMED = re.compile(r"((?:[a-z_]\w*)(?:, [a-z_]\w*)*)(?:: |  +)(\S.*)")


def as_list(text: str) -> str:
    """Lines that begin with names and a colon, and what is indented below each, as items."""
    lines: list[str] = []
    example = False
    for line in text.split("\n"):
        named = _NAMED.fullmatch(line)
        if line.startswith(">>>") and not example:
            lines += ["", "```pycon", line]
            example = True
        elif example:
            lines += [line] if line.strip() else ["```", ""]
            example = bool(line.strip())
        elif named:
            if lines and lines[-1] and not lines[-1].startswith("- "):
                lines.append("")
            names = ", ".join(f"`{name}`" for name in named[1].split(", "))
            lines.append(f"- {names}: {named[2]}")
        elif line.startswith("  ") and lines and lines[-1].startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if example else lines)


class ListsOfNames(griffe.Extension):
    """What mkdocstrings reads passes through here."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_list(obj.docstring.value)
