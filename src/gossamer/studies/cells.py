"""The cells of a comparison: recipes × `--over` values × seeds in rows; checked, run as far as missing, read back."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

import gossamer
from gossamer.config.layers import named, parse_overrides, resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.headline import headline, judged, title, written
from gossamer.results.rundir import RunDirectory, lock_file, read_metrics, read_object, read_text
from gossamer.results.terminal import terminal
from gossamer.results.verify import verify_files
from gossamer.studies.jobs import Engine, Outcome, train, unpack
from gossamer.training.budget import preview, refuse_above_cap

if TYPE_CHECKING:
    from gossamer.training.plan import Plan

BASELINES = ("non-private", "no-communication", "central")
METHOD = "algorithm.kind"
EPSILON = "privacy.epsilon"


@dataclass(frozen=True)
class Cell:
    """One run: a resolved configuration, and what people call it."""

    config: RunConfig
    label: str

    @cached_property
    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(exclude_none=True)

    @cached_property
    def name(self) -> str:
        """The cell's folder, from its configuration alone: what people recognise it by, and a digest of all of it."""
        config, epsilon = self.config, self.config.privacy.epsilon
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:10]
        baseline = [config.baseline] if config.baseline != "none" else []
        budget = [f"epsilon={plain(epsilon)}"] if epsilon is not None else []
        parts = [config.name, config.algorithm.kind, *baseline, config.mode, *budget, f"seed={config.seed}"]
        readable = re.sub(r"[^A-Za-z0-9.=_-]+", "-", "-".join(parts)).strip(".-")[:80]
        return f"{readable}-{digest}"

    def folder(self, out: Path) -> Path:
        return out / "cells" / self.name

    def is_finished(self, out: Path) -> bool:
        """The certificate is written last; the configuration must be this cell's, key by key."""
        folder = self.folder(out)
        if not (folder / "certificate.json").is_file():
            return False
        try:
            read_text(folder / "config.toml")  # a pipe in its place is refused, not waited for
            return stored(folder / "config.toml").model_dump() == self.config.model_dump()
        except UserError:
            return False

    def verify(self, out: Path) -> None:
        """Raise if the files of a finished cell differ from what its run signed."""
        try:
            verify_files(self.folder(out))
        except UserError as error:
            remedy = f"or remove {self.folder(out)} to run this cell again"
            raise UserError(f"{str(error).rstrip('.')}; {remedy}.") from None

    def set_aside(self, out: Path) -> Path | None:
        """Move the files of a stopped run away; nothing is ever deleted or overwritten."""
        if not self.folder(out).exists():
            return None
        (out / "set-aside").mkdir(exist_ok=True)
        count = 1
        while (target := out / "set-aside" / f"{self.name}-{count}").exists():
            count += 1
        return self.folder(out).rename(target)

    def result(self, out: Path) -> dict[str, Any]:
        """The last evaluation, all evaluations as `history`, and the certificate's figures, which win."""
        folder = self.folder(out)
        history = [judged(row) for row in read_metrics(folder / "metrics.jsonl")]
        if not history:
            remedy = f"remove {folder} to run this cell again"
            raise UserError(f"{folder / 'metrics.jsonl'} is missing or empty; {remedy}.")
        certificate = read_object(folder / "certificate.json")
        return {**history[-1], **certificate, "history": history, "cell": self.name}

    def rounds_done(self, out: Path) -> int:
        """The round of a running cell's last evaluation."""
        try:
            rows = read_metrics(self.folder(out) / "metrics.jsonl")
        except UserError:  # reported where the cell is read
            return 0
        return int(rows[-1]["round"]) if rows else 0


@dataclass(frozen=True)
class Row:
    """One line of the table: the same settings under several seeds."""

    recipe: str
    settings: dict[str, Any]  # what `--over` varies; None where a value does not apply
    baseline: str | None
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        parts = [f"{short(key)}={plain(value)}" for key, value in self.settings.items() if value is not None]
        return ", ".join([self.recipe, *parts, *([self.baseline] if self.baseline else [])])


Recipe = str | Mapping[str, Any] | RunConfig


def lay_out(
    recipes: Sequence[Recipe],
    *,
    sets: Mapping[str, Any] | None = None,
    overs: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 1,
    baselines: bool = False,
) -> list[Row]:
    """Every combination, resolved and checked; the first mistake raises."""
    fixed, varied, called = sets or {}, _checked(overs or {}), [named(recipe) for recipe in recipes]
    for key in varied:
        if key in fixed:
            raise UserError(f"{key} is given by --set and by --over; keep one of them.")
    if seeds < 1:
        raise UserError(f"--seeds {seeds} must be at least 1.")
    if seeds > 1 and "seed" in varied:
        raise UserError("--over seed and --seeds both vary the seed; keep one of them.")
    if len({name for name, _ in called}) < len(called):
        raise UserError("a recipe is named twice; name each once.")
    rows: dict[str, Row] = {}
    for (name, recipe), *values in itertools.product(called, *varied.values()):
        for baseline in (None, *(BASELINES if baselines else ())):
            settings = dict(zip(varied, values, strict=True))
            changes = {**fixed, **settings, **({"baseline": baseline} if baseline else {})}
            if baseline == "non-private" and EPSILON in settings:
                settings[EPSILON] = None  # no budget matters: one row serves the whole sweep
            row = Row(name, settings, baseline, ())
            if row.label not in rows:
                rows[row.label] = replace(row, cells=cells(recipe, changes, row.label, seeds))
    return list(rows.values())


def cells(recipe: Mapping[str, Any], changes: Mapping[str, Any], label: str, seeds: int) -> tuple[Cell, ...]:
    """One cell per seed, counted up from the recipe's own."""
    # A change of kind empties its table, so it goes before the other keys of that table.
    ordered = dict(sorted(changes.items(), key=lambda item: not item[0].endswith(".kind")))
    try:
        first = resolve(recipe, ordered)
        several = [resolve(recipe, {**ordered, "seed": first.seed + i}) for i in range(seeds)]
    except UserError as error:
        raise UserError(f"{label}: {error}") from None
    if first.runtime.kind != "simulator":
        what = f"{label}: runtime.kind = {first.runtime.kind!r} is for single runs"
        raise UserError(f"{what}; cells run side by side, each on the simulator: leave it out.")
    return tuple(Cell(config, f"{label}, seed {config.seed}") for config in several)


def parse_overs(texts: Iterable[str]) -> dict[str, list[Any]]:
    """`a.b=1,2` → {"a.b": [1, 2]}; each value read as `--set` reads it."""
    varied: dict[str, list[Any]] = {}
    for text in texts:
        key, sign, listed = (part.strip() for part in text.partition("="))
        values = split_values(listed)
        if not sign or not key or not all(values):
            raise UserError(f"--over {text!r} must have the form key=value,value, as {EPSILON}=0.3,1.")
        if key in varied:
            raise UserError(f"--over {key} is given twice; list all its values in one.")
        varied[key] = [parse_overrides([f"{key}={value}"])[key] for value in values]
    return varied


def _checked(over: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    for key, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UserError(f"over {key} = {values!r} must list values, for example [0.3, 1.0].")
        if any(value in values[:k] for k, value in enumerate(values)):
            raise UserError(f"over {key} = {values!r} lists a value twice; list each once.")
    return over


def split_values(text: str) -> list[str]:
    """Split at commas, but not inside brackets, braces or quotes."""
    values, depth, quote, start = [], 0, "", 0
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and depth == 0:
            values.append(text[start:at].strip())
            start = at + 1
    return [*values, text[start:].strip()]


def plain(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={plain(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(plain, value)) + "]" if isinstance(value, list) else str(value)


def short(key: str) -> str:
    """A key as the head of a column: two everyone knows have a name of their own."""
    return {EPSILON: "ε", METHOD: "method"}.get(key, key)


def ledgers(out: Path) -> list[Path]:
    """Of all cells that have released something, also those that failed or were stopped."""
    places = (place for part in ("cells", "set-aside") for place in (out / part).glob("[!.]*/ledger*.jsonl"))
    return sorted({place.parent for place in places})


# --- running them ---------------------------------------------------------------------------------------------

MARK = "comparison.json"


@dataclass(frozen=True)
class Batch:
    """The results of the cells: one list per row, without the cells that failed."""

    out: Path
    results: list[list[dict[str, Any]]]
    failed: dict[str, str]  # label of the cell → reason
    ran: int
    kept: int  # finished before
    budget: dict[str, Any] | None = None  # of all runs on the same records of the user's own

    @property
    def summary(self) -> dict[str, Any]:
        counts = {"cells_run": self.ran, "cells_kept": self.kept}
        return {"out": str(self.out), **counts, "failed": self.failed, "budget": self.budget}


def run_rows(
    rows: Sequence[Row],
    out: Path,
    *,
    jobs: int | None,
    data_dir: Path | None,
    quiet: bool,
    force: bool = False,
    engine: str = "local",
) -> Batch:
    """Run every cell that is not finished in `out`.

    A mistake in any cell raises before anything is written; a cell that fails later stops no other.
    """
    where = Engine(engine, jobs)
    refuse_foreign(out)
    unique = {cell.name: cell for row in rows for cell in row.cells}
    for cell in unique.values():
        where.refuse(cell.config)
    where.check()
    plans = check(rows, data_dir, force=force)
    before = _spent_before(rows, plans, out, data_dir)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made: {error.strerror}.") from None
    with alone_in(out):
        (out / "cells").mkdir(exist_ok=True)
        mark_folder(out, rows)
        todo = by_records([cell for cell in unique.values() if not cell.is_finished(out)], data_dir)
        kept = len(unique) - len(todo)
        for cell in unique.values():
            if cell not in todo:
                cell.verify(out)
        with Display(out, len(todo), quiet=quiet) as display:
            finished = f", {kept} of them finished already" if kept else ""
            display.say(f"{len(unique)} cells{finished}, {where.at_a_time(len(todo))}, in {out}")
            failed = run_cells(todo, out, where, display, data_dir=data_dir, force=force)
        results = [[cell.result(out) for cell in row.cells if cell.name not in failed] for row in rows]
    reasons = {unique[name].label: reason for name, reason in failed.items()}
    spent = preview([(plan, 0) for plan in plans.values()], data_dir)
    if spent is not None and before is not None:
        spent["epsilon_before"], spent["runs_before"] = before["epsilon_before"], before["runs_before"]
    return Batch(out, results, reasons, len(todo), kept, spent)


def check(rows: Sequence[Row], data_dir: Path | None, *, force: bool = False) -> dict[str, Plan]:
    """Load the data and plan the first cell of every row: keys, model, graph and budget fit, or an error says why."""
    from gossamer.training.data import DataCache
    from gossamer.training.plan import Plan

    cache, plans = DataCache(), dict[str, Plan]()
    firsts = {row.cells[0].name: (row.label, row.cells[0]) for row in reversed(rows) if row.cells}
    for cell in by_records([cell for _, cell in reversed(firsts.values())], data_dir):
        try:
            cache.load(cell.config, data_dir)  # are the records at hand, and may this run have them?
            plan = Plan.of(cell.config, data_dir=data_dir, cache=cache, force=force)
            # The records are not kept: those of all rows together may be too many.
            plans[cell.name] = replace(plan, dataset=None)
        except UserError as error:
            raise UserError(f"{firsts[cell.name][0]}: {error}") from None
    return plans


def by_records(cells: Sequence[Cell], data_dir: Path | None) -> list[Cell]:
    """Those that read the same records one after another, for a cache holds one data set; else in their order."""
    from gossamer.training.data import key_of

    keys = [key_of(cell.config, data_dir) for cell in cells]
    place = {key: at for at, key in reversed([*enumerate(keys)])}
    return [cells[i] for i in sorted(range(len(cells)), key=lambda i: place[keys[i]])]


def _spent_before(
    rows: Sequence[Row], plans: dict[str, Plan], out: Path, data_dir: Path | None
) -> dict[str, Any] | None:
    """Return what was spent on the user's records so far; raises if the cells to run would pass their cap."""
    # cell → the one of its row that was planned, of the first row that has it
    planned = {cell.name: (cell, row.cells[0].name) for row in reversed(rows) for cell in row.cells}
    counts = Counter(first for cell, first in planned.values() if not cell.is_finished(out))
    wanted = [(plan, counts[name]) for name, plan in plans.items()]
    refuse_above_cap(wanted, data_dir)
    return preview(wanted, data_dir)


def refuse_foreign(out: Path) -> None:
    """Only an empty folder or an earlier comparison may be written into."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise UserError(f"--out {out} exists and holds no comparison; name a new folder or one to continue.")


def mark_folder(out: Path, rows: Sequence[Row]) -> None:
    folders = [[{"label": cell.label, "folder": f"cells/{cell.name}"} for cell in row.cells] for row in rows]
    contents = [{"label": row.label, "cells": own} for row, own in zip(rows, folders, strict=True)]
    RunDirectory(out).write_json(MARK, {"gossamer": gossamer.__version__, "rows": contents})


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse a second comparison that would write into the same folder at the same time."""
    lock = lock_file(out / ".lock", f"--out {out} is in use by another comparison; wait for it.")
    try:
        yield
    finally:
        lock.release()


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    engine: Engine,
    display: Display,
    *,
    data_dir: Path | None = None,
    force: bool = False,
) -> dict[str, str]:
    """Run these cells; returns those that failed, by name, with the reason in one sentence."""
    failed: dict[str, str] = {}
    by_name = {cell.name: cell for cell in cells}
    folders = {cell.name: cell.folder(out) for cell in cells}
    for cell in cells:
        cell.set_aside(out)

    def job(cell: Cell) -> partial[Outcome]:
        places = (folders[cell.name], data_dir) if engine.here else (None, None)
        return partial(train, cell.settings, *places, force=force, version=gossamer.__version__)

    queued, jobs = dict(by_name), {cell.name: job(cell) for cell in cells}
    for ended in engine.run(jobs, out / "errors.log", begun=lambda name: folders[name].exists()):
        for name in [name for name in queued if folders[name].exists()]:
            display.started(queued.pop(name))
        if ended is None:
            display.tick()
            continue
        name, outcome = ended
        queued.pop(name, None)
        if outcome.error is not None:
            failed[name] = outcome.error
        elif outcome.value is not None:
            unpack(outcome.value, folders[name])
        display.done(by_name[name], outcome.error)
    return failed


class Display(Progress):
    """The progress of a comparison: bars on a terminal, one plain line per finished cell elsewhere."""

    def __init__(self, out: Path, total: int, *, quiet: bool):
        # With --json, stdout belongs to the one object: everything else goes to stderr.
        console = terminal(to_stderr=quiet)
        bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*bars, console=console, disable=not console.is_terminal)
        self.say = console.say
        self._out, self._total, self._done = out, total, 0
        self._all = self.add_task("cells", total=total)
        self._running: dict[str, tuple[Cell, TaskID]] = {}

    def started(self, cell: Cell) -> None:
        self._running[cell.name] = (cell, self.add_task(cell.label, total=cell.config.rounds))

    def tick(self) -> None:
        if self.console.is_terminal:
            for cell, task in self._running.values():
                self.update(task, completed=cell.rounds_done(self._out))

    def done(self, cell: Cell, error: str | None) -> None:
        self._done += 1
        if cell.name in self._running:
            self.remove_task(self._running.pop(cell.name)[1])
        self.update(self._all, completed=self._done)
        self.say(f"{self._done}/{self._total}  {cell.label}: {self._outcome(cell, error)}")

    def _outcome(self, cell: Cell, error: str | None) -> str:
        if error is not None:
            return f"failed: {error}"
        result = cell.result(self._out)
        quality = "done"
        if result.get("consensus_distance") is None:
            quality = "diverged"
        elif (name := headline(result)) is not None:
            quality = f"{title(name)} {written(name, result[f'{name}_mean'])}"
        return f"{quality}, {result['seconds']:.1f} s"
