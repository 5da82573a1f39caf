"""Which cells of a result file are still the same experiment; what becomes of the others is said, or refused."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.options.sentences import user_error
from gossamer.results.terminal import terminal
from gossamer.studies.cells import MARK, Batch, Cell, Row
from gossamer.studies.reproduce import flatten

P = TypeVar("P", bound=Hashable)  # a cell's place in the item


def finished_rows(rows: Sequence[Row], out: Path) -> Batch:
    """The finished cells of `out`; nothing is run."""
    if not (out / MARK).is_file():
        raise UserError(f"--as-is: {out} holds no comparison; name its folder with --out, or leave --as-is out.")
    done = [[cell for cell in row.cells if cell.is_finished(out)] for row in rows]
    for cell in {cell.name: cell for row in done for cell in row}.values():
        cell.verify(out)
    results = [[cell.result(out) for cell in row] for row in done]
    return Batch(out, results, {}, 0, sum(map(len, done)))


@dataclass(frozen=True)
class Recorded:
    """A cell of a result file."""

    name: str  # for people
    settings: Mapping[str, Any]
    seeds: Sequence[int]
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Known(Generic[P]):
    """What a result file had before this command."""

    file: Path
    before: bytes | None  # all of it; None where there was no file
    same: Mapping[P, dict[str, Any]]  # these settings and seeds: not run again. Settings are written as today
    anew: Sequence[str] = ()  # in the definition with other settings or seeds
    gone: Sequence[str] = ()  # not in the definition any more

    def announce(self, *, as_is: bool, quiet: bool) -> None:
        """Before anything is run. `as_is`: nothing will be, so that no cell can be made anew."""
        if as_is and self.anew:
            raise UserError(
                f"{self.file} has {_count(self.anew)} with other settings or seeds than the definition, first "
                f"{self.anew[0]!r}, and --as-is would drop them; leave --as-is out to run them anew."
            )
        for line in () if quiet else self._lines():
            terminal().print(line, soft_wrap=True)

    def _lines(self) -> Iterator[str]:
        if self.before is not None:
            yield f"{len(self.same)} cells are in {self.file} already"
        for cells, becomes in (
            (
                self.anew,
                (
                    "have other settings or seeds in the definition now and are run anew",
                    "has other settings or seeds in the definition now and is run anew",
                ),
            ),
            (
                self.gone,
                ("are not in the definition any more and go", "is not in the definition any more and goes"),
            ),
        ):
            if cells:
                yield f"{_count(cells)} of that file {becomes[len(cells) == 1]}, first {cells[0]!r}"

    def refuse_changed(self) -> None:
        """Just before the file is written: cells that somebody else wrote meanwhile would be lost."""
        if _content(self.file) != self.before:
            raise UserError(
                f"{self.file} was changed while cells ran; give the same command again: what is finished is kept."
            )


@contextmanager
def parts_of(file: Path) -> Iterator[None]:
    """Around what takes a result file apart."""
    try:
        yield
    except KeyError as error:
        raise UserError(f"{file} is damaged: a cell of it has no {error.args[0]!r}.") from None


def known_cells(file: Path, recorded: Mapping[P, Recorded], wanted: Mapping[P, Sequence[Cell]]) -> Known[P]:
    """`wanted`: the runs of each cell of the definition, one for a seed."""
    same: dict[P, dict[str, Any]] = {}
    anew, gone, unknown = [], [], []
    for place, cell in recorded.items():
        try:
            settings = as_today(cell.settings)
        except UserError as error:
            unknown.append((cell.name, str(error).rstrip(".")))
            continue
        runs = wanted.get(place)
        if not runs:
            gone.append(cell.name)
        elif settings == settings_of(runs[0]) and list(cell.seeds) == [run.config.seed for run in runs]:
            same[place] = {**cell.figures, "settings": settings}
        else:
            anew.append(cell.name)
    if unknown:
        name, because = unknown[0]
        raise UserError(
            f"{file} has {_count(unknown)} whose settings are no configuration here, first {name!r} ({because}); "
            f"record with the version that made them, or take them out of the file to run them anew."
        )
    return Known(file, _content(file), same, anew, gone)


def settings_of(run: Cell) -> dict[str, Any]:
    """All of a run's configuration but its seed, by dotted keys."""
    return _settings(run.config)


def as_today(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a result file with the keys that came since, at their defaults."""
    return _settings(config_of(settings))


def config_of(settings: Mapping[str, Any]) -> RunConfig:
    """The configuration that a result file's settings are, without a recipe; a key that is null is unset."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *tables, last = key.split(".")
        table = nested
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UserError(f"{key} is set, but {name} is no table.")
        table[last] = value
    try:
        return RunConfig.model_validate_json(json.dumps(nested))
    except ValidationError as error:
        raise user_error(error, nested, model=RunConfig) from None


def _settings(config: RunConfig) -> dict[str, Any]:
    settings = flatten(json.loads(config.model_dump_json(exclude_none=True)))
    settings.pop("seed", None)
    return settings


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _count(cells: Sequence[Any]) -> str:
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
