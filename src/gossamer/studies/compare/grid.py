"""The runs of a comparison: recipes × `--over` values × seeds as rows of cells, and the folder of each cell."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gossamer.config.layers import named, parse_overrides, resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.headline import judged
from gossamer.results.rundir import read_metrics, read_object, read_text
from gossamer.results.verify import verify_files

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
