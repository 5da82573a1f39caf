"""Named, ready runs. A recipe is a TOML file in this folder; its name is its path without the ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.options.nearest import ending
from gossamer.options.toml import read_toml

__all__ = ["description", "names", "read"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(str(path.relative_to(_FOLDER).with_suffix("")) for path in _FOLDER.rglob("*.toml"))


def description(name: str) -> str:
    """The comment lines a recipe opens with."""
    lines = []
    for line in (_FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def read(name_or_path: str) -> dict[str, Any]:
    """A recipe by name, or a TOML file of the user's by path."""
    if name_or_path in names():
        return read_toml(_FOLDER / f"{name_or_path}.toml")
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise UserError(f"{name_or_path} does not exist; give a TOML file or a recipe{_meant(path.stem)}")
        return {"name": path.stem, **read_toml(path)}
    raise UserError(f"{name_or_path!r} is neither a recipe nor a .toml file{_meant(name_or_path)}")


def _meant(word: str) -> str:
    """There are too many for one sentence: the nearest, and where the others are."""
    return f"{ending(word, names())} `gossamer recipes` lists the recipes."
