"""One door to every data set. A new one is a class in one of these files, or in a file of its own and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.data import memory, own, public, sources, synthetic, weights
from gossamer.data.dataset import Dataset
from gossamer.data.fetch import cache_dir
from gossamer.data.source import Facts, Source, datasets
from gossamer.errors import UserError
from gossamer.options.nearest import ending

__all__ = [
    "Facts",
    "SetInfo",
    "Source",
    "catalogue",
    "datasets",
    "get",
    "load",
    "memory",
    "own",
    "public",
    "synthetic",
]


@dataclass(frozen=True)
class SetInfo:
    """One line of `gossamer data list`."""

    name: str
    rows: tuple[int, int] | None  # training and hold-out; None: as many as asked for
    shape: tuple[int, ...] | None
    classes: int | None
    origins: tuple[str, ...]
    available: bool  # offline, now; a file is there, its content is checked when it is loaded


def load(kind: str, *, data_dir: Path | None = None, seed: int = 0, **options: Any) -> Dataset:
    """The data set of that kind with these options of the table [data]."""
    table = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    return datasets.parse({"kind": kind, **table}).load(data_dir, seed)


def catalogue(*, data_dir: Path | None = None) -> list[SetInfo]:
    """Every named set and whether it is here now; looks for files without reading them."""
    folder = sources.user_folder(data_dir)
    places = [cache_dir(), *([folder] if folder else [])]
    return [_info(name, kind.facts, places) for name, kind in datasets.kinds.items() if not kind.own]


def _info(name: str, facts: Facts | None, places: list[Path]) -> SetInfo:
    if facts is None:
        return SetInfo(name, None, None, None, ("generated",), True)
    entry = sources.PUBLIC.get(name)
    if entry is None:
        return SetInfo(name, facts.rows, facts.shape, facts.classes, ("scikit-learn",), True)
    here = any(True for place in places for _ in sources.local_files(entry, place))
    remotes = (remote.name for remote in entry.remotes)
    origins = ("folder", *(["Debian package"] if entry.system else []), *remotes)
    available = here or bool(sources.system_folders(entry))
    return SetInfo(name, facts.rows, facts.shape, facts.classes, origins, available)


def get(name: str, *, data_dir: Path | None = None) -> Path:
    """Bring a public set, or public weights, into the cache and return the file's path there."""
    if name in weights.KNOWN:
        content, path = weights.find(name, data_dir)
        return _kept(name, path, lambda: weights.keep(name, content))
    if name in datasets and name not in sources.PUBLIC:
        how = "needs a file of your own" if datasets[name].own else "comes with the program"
        raise UserError(f"{name} {how}: there is nothing to get; use it with data.kind = {name!r}.")
    if name not in sources.PUBLIC:
        can = [*sources.PUBLIC, *weights.KNOWN]
        raise UserError(
            f"{name!r} is not a data set I know; to get there are {', '.join(can)}{ending(name, can)}"
        )
    entry = sources.PUBLIC[name]
    found = sources.find(name, data_dir)
    return _kept(name, found.path, lambda: sources.store(entry, found.arrays, found.path))


def _kept(name: str, path: Path | None, store: Callable[[], Path]) -> Path:
    if path is not None and path.parent == cache_dir():
        return path
    try:
        return store()
    except OSError as error:
        raise UserError(
            f"{name} could not be kept in the cache folder {cache_dir()}: {error.strerror}"
        ) from error
