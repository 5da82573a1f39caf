"""All kinds of data sets, by name. A new one is a class in one of these modules, or in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.data import own, public, synthetic, texts  # in the order of the listings
from gossamer.data.dataset import Dataset
from gossamer.data.origins import WEIGHTS, Origin, cache_dir, user_folder
from gossamer.data.source import Facts, Source, datasets
from gossamer.errors import UserError, ending

__all__ = ["Facts", "Source", "datasets", "own", "public", "synthetic", "texts"]  # imported for others


@dataclass(frozen=True)
class SetInfo:
    """One line of `gossamer data list`."""

    name: str
    rows: tuple[int, int] | None  # training and hold-out; None: an option
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
    places = [place for place in (cache_dir(), user_folder(data_dir)) if place is not None]
    entries = []
    for name, kind in datasets.kinds.items():
        facts, origin = kind.facts, kind.origin
        if kind.own:
            continue
        if origin is not None:
            origins = ("folder", *(remote.name for remote in origin.remotes))
            available = any(any(origin.files_in(place)) for place in places)
        else:
            origins, available = ("scikit-learn" if facts else "generated",), True
        rows, shape, classes = facts and facts.rows, facts and facts.shape, facts and facts.classes
        entries.append(SetInfo(name, rows, shape, classes, origins, available))
    return entries


def get(name: str, *, data_dir: Path | None = None) -> Path:
    """Bring a public set, or public weights, into the cache and return the file's path there."""
    kind, origin = datasets.kinds.get(name), _origin(name)
    if kind is not None and origin is None:
        how = "needs a file of your own" if kind.own else "comes with the program"
        raise UserError(f"{name} {how}: there is nothing to get; use it with data.kind = {name!r}.")
    if origin is None:
        known = [*(name for name, kind in datasets.kinds.items() if kind.origin), *WEIGHTS]
        raise UserError(f"{name!r} is no known data set; there are {', '.join(known)}{ending(name, known)}")
    copy = origin.find(data_dir)
    if copy.path is not None and copy.path.parent == cache_dir():
        return copy.path
    try:
        return origin.store(copy)
    except OSError as error:
        raise UserError(f"{name} could not be kept in the cache {cache_dir()}: {error.strerror}") from error


def licence_of(name: str) -> str:
    """Under what its publisher gives it away, as far as that is written down."""
    origin = _origin(name)
    return origin.licence if origin is not None else ""


def _origin(name: str) -> Origin | None:
    return WEIGHTS.get(name) or getattr(datasets.kinds.get(name), "origin", None)
