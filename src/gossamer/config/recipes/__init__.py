"""Named, ready runs. A recipe is a TOML file in this folder; its name is its path without the ending."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from glob import escape, glob
from pathlib import Path
from typing import Any

from gossamer.errors import UserError, ending

__all__ = ["absolute_paths", "description", "names", "read", "read_toml"]

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
        return {"name": path.stem, **absolute_paths(read_toml(path), path.parent)}
    raise UserError(f"{name_or_path!r} is neither a recipe nor a .toml file{_meant(name_or_path)}")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file of the user's or of ours; what is wrong with it is one sentence."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}; fix it.") from None
    except (RecursionError, ValueError):
        raise UserError(f"{path} is nested too deeply or has too many digits; name another.") from None


def absolute_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same with every file that a key names relative to `folder` by its absolute path.

    Records that are neither there nor in the working directory stay as written: they may be in the data folder.
    """
    found = dict(tables)
    if isinstance(found.get("model"), str) and ":" in found["model"]:
        found["model"] = _absolute(found["model"], folder)
    for table, keys in _FILES.items():
        if isinstance(its := found.get(table), Mapping):
            names = [key for key in keys if isinstance(its.get(key), str)]
            sought = [
                key for key in names if key not in ("path", "test") or table != "data" or _exists(its[key], folder)
            ]
            found[table] = {**its, **{key: _absolute(its[key], folder) for key in sought}}
    if isinstance(found.get("paper"), dict):
        found["paper"] = absolute_paths(found["paper"], folder)
    return found


_FILES = {"data": ("path", "test", "accounts"), "model": ("path",), "topology": ("matrix",)}


def _absolute(name: str, folder: Path) -> str:
    return os.path.abspath(folder / Path(name).expanduser()) if name else name


def _exists(name: str, folder: Path) -> bool:
    """There, or in the working directory; {node} stands for any node."""
    pattern = escape(name).replace("{node}", "*")
    return any(glob(_absolute(pattern, place)) for place in (Path(escape(str(folder))), Path.cwd()))


def _meant(word: str) -> str:
    """There are too many for one sentence: the nearest, and where the others are."""
    return f"{ending(word, names())} `gossamer recipes` lists the recipes."
