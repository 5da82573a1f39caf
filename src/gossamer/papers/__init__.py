"""The papers' tables as data: what is printed, where, and which run stands for each cell. See docs/compare.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.options.nearest import ending
from gossamer.options.toml import read_toml

__all__ = ["names", "read", "titles"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(str(path.relative_to(_FOLDER).with_suffix("")) for path in _FOLDER.rglob("*.toml"))


def read(name_or_path: str) -> dict[str, Any]:
    """A table by name, or a definition of the user's by path; `like` names another one that it takes over."""
    if name_or_path in names():
        return _as_other(read_toml(_FOLDER / f"{name_or_path}.toml"))
    if name_or_path.endswith(".toml"):
        return _as_other(read_toml(Path(name_or_path)))
    raise UserError(
        f"{name_or_path!r} is not a table I know; the tables are {', '.join(names())}"
        f"{ending(name_or_path, names())}"
    )


def _as_other(table: dict[str, Any]) -> dict[str, Any]:
    """Key by key the table's own, else the other's; its rules come after the other's, so that cells can be shared."""
    like = table.pop("like", None)
    if like is None:
        return table
    other = read(like)
    return {**other, **table, "rule": [*other.get("rule", []), *table.get("rule", [])]}


def titles() -> dict[str, str]:
    """Name → title with its paper, for a list: read off the files, without the kinds that a run would need."""
    found = {}
    for name in names():
        table = read(name)
        place = table.get("source") or table.get("grid", [{}])[0].get("source", "")
        paper = f" ({table['paper']}, {place.split(',')[0]})" if "paper" in table else ""
        found[name] = f"{table['title']}{paper}"
    return found
