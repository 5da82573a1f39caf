"""`data.transform`: steps set up for the records' shape, fitted on public sets, applied in blocks, cached."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.data.dataset import Dataset
from gossamer.data.digest import digest
from gossamer.data.features.chain import (
    costly,
    every,
    named_steps,
    set_up,
    through,
    to_fit,
    widest,
    written_out,
)
from gossamer.data.features.pretrained import Pretrained
from gossamer.data.features.steps import Shape, Step
from gossamer.data.fetch import atomic, cache_dir
from gossamer.data.overlap import share_rows
from gossamer.errors import UserError
from gossamer.options.stage import stage

Floats = npt.NDArray[np.float32]
Load = Callable[[str, dict[str, Any]], Dataset]  # kind, options → a data set
BLOCK_FLOATS = 1 << 20  # of the widest step in one block: larger ones leave the cache
LEAST_ROWS = 50  # of a block: a wide matrix is read once for each
VERSION = 1  # of what the steps compute; part of the cache's key


def transformed(
    dataset: Dataset, transform: object, load: Load, *, keep: bool, data_dir: Path | None = None
) -> Dataset:
    """The data set after its steps. `keep`: what was computed goes to the cache, for records that are public."""
    steps = named_steps(transform)
    made = _made(steps, dataset.x_train.shape[1:], data_dir)
    sources = {_name(step.public): _public(step.public, dataset, load) for step, _ in to_fit(made)}
    records = {"x_train": dataset.x_train, "x_test": dataset.x_test}
    folder = _folder(steps, records, sources)
    found: Mapping[str, Floats] = _cached(folder)
    if not found:
        # What takes minutes comes first and is kept by itself: other steps can follow it, and other sets need it.
        first = _costly(steps, made)
        begun = _first_stage(steps[:first], made[:first], records, f"features of {dataset.name}", keep=keep)
        for step, before in to_fit(made):
            _fit(step, steps[:first], before, sources[_name(step.public)])
        found = begun
        if first < len(made):
            found = {
                part: _apply(made[first:], x, f"features of {dataset.name}") for part, x in begun.items()
            }
            _store(folder, found, keep and bool(sources or any(map(costly, steps))))
    note = {"transform": json.dumps(steps, ensure_ascii=False)}
    return replace(
        dataset,
        x_train=np.array(found["x_train"]),
        x_test=np.array(found["x_test"]),
        provenance={**dataset.provenance, **note},
    )


def applied(x: Floats, transform: object, load: Load, *, data_dir: Path | None = None) -> Floats:
    """New records through the same steps, fitted again on the same public sets; nothing is kept."""
    made = _made(named_steps(transform), x.shape[1:], data_dir)
    for step, before in to_fit(made):
        table = _table(step.public)
        source = load(table["kind"], {k: v for k, v in table.items() if k != "kind"})
        if source.x_train.shape[1:] != x.shape[1:]:
            raise UserError(
                f"data.transform: public = {step.public!r} has records of shape {source.x_train.shape[1:]}, the data "
                f"{x.shape[1:]}."
            )
        _fit(step, [], before, source)
    return _apply(made, x, "features")


def _made(steps: Sequence[Mapping[str, Any]], shape: Shape, data_dir: Path | None) -> list[Step]:
    made = set_up(steps, shape)
    for step in every(made):
        if isinstance(step, Pretrained):
            step.data_dir = data_dir
    return made


def _costly(steps: Sequence[Mapping[str, Any]], made: Sequence[Step]) -> int:
    """How many steps, from the first, lead up to the last one that takes long; none of them may need a fit."""
    ends = [k + 1 for k, step in enumerate(steps) if costly(step)]
    return 0 if not ends or any(to_fit(made[: ends[-1]])) else ends[-1]


def _first_stage(
    steps: Sequence[Mapping[str, Any]],
    made: Sequence[Step],
    records: Mapping[str, Floats],
    label: str,
    *,
    keep: bool,
) -> Mapping[str, Floats]:
    if not made:
        return records
    folder = _folder(steps, records, {})
    found = _cached(folder)
    if not found:
        found = {part: _apply(made, x, label) for part, x in records.items()}
        _store(folder, found, keep)
    return found


def _table(public: Any) -> Mapping[str, Any]:
    """The public set that a step names, by its kind or as a table with a kind and options."""
    table = {"kind": public} if isinstance(public, str) else public
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise UserError(
            f"data.transform: public = {public!r} must name a data set, for example public = 'fashion-mnist'."
        )
    return table


def _public(public: Any, dataset: Dataset, load: Load) -> Dataset:
    table = _table(public)
    changed = [key for key in CHANGED if key in table]
    if changed:
        raise UserError(
            f"data.transform: public = {public!r} has {changed[0]}; leave it out, since a public set goes through "
            "the same steps as the data."
        )
    source = load(table["kind"], {k: v for k, v in table.items() if k != "kind"})
    ours, theirs = dataset.x_train, source.x_train
    if ours.shape[1:] != theirs.shape[1:]:
        raise UserError(
            f"data.transform: public = {public!r} has records of shape {theirs.shape[1:]}, the data {ours.shape[1:]}."
        )
    if source.name == dataset.name in STORED or share_rows(ours, theirs):
        raise UserError(
            f"data.transform: public = {public!r} has records of the training set; what is fitted must not see them."
        )
    return source


CHANGED = ("transform", "pca", "pca_from", "scale", "bias")  # records of another form cannot be compared
STORED = ("mnist", "fashion-mnist", "cifar10", "cifar100", "covertype", "adult", "digits")


def _fit(
    step: Any, costly_ones: Sequence[Mapping[str, Any]], before: Sequence[Step], source: Dataset
) -> None:
    """On the public set, after the steps before it; the costly ones at the start may lie in the cache."""
    order = np.random.default_rng(0).permutation(len(source.x_train))[: step.rows]
    if len(order) < 2:
        raise UserError(f"data.transform: public = {step.public!r} has {len(order)} records; 2 are needed.")
    records = {"x_train": source.x_train, "x_test": source.x_test}
    begun = _cached(_folder(costly_ones, records, {})) if costly_ones else {}
    rows = (begun or records)["x_train"][np.sort(order)]
    rest = before[len(costly_ones) :] if begun else before
    step.fit(lambda: _blocks(rest, rows, f"public features of {source.name}"))


def _apply(steps: Sequence[Step], x: Floats, label: str) -> Floats:
    shape = steps[-1].shape if steps else x.shape[1:]
    result = np.empty((len(x), *shape), np.float32)
    at = 0
    for block in _blocks(steps, x, label):
        result[at : at + len(block)] = block.numpy()
        at += len(block)
    return result


@torch.no_grad()
def _blocks(steps: Sequence[Step], x: Floats, label: str) -> Iterator[Tensor]:
    most = max([int(np.prod(x.shape[1:])), *map(widest, steps)])
    rows = max(LEAST_ROWS, BLOCK_FLOATS // max(1, most))
    with _progress(label, len(x)) as advance:
        for at in range(0, len(x), rows):
            block = torch.from_numpy(
                np.array(x[at : at + rows])
            )  # a copy: what lies in a file stays as it is
            block = through(steps, block)
            advance(len(block))
            yield block


def _folder(
    steps: Sequence[Mapping[str, Any]], records: Mapping[str, Floats], sources: Mapping[str, Dataset]
) -> Path:
    """Named after what the result depends on: the records, the steps with all their options, the public records."""
    public = {name: digest({"x_train": source.x_train}) for name, source in sources.items()}
    text = json.dumps([VERSION, digest(records), written_out(steps), public], sort_keys=True)
    return cache_dir() / "features" / hashlib.sha256(text.encode()).hexdigest()[:24]


def _store(folder: Path, found: Mapping[str, Floats], keep: bool) -> None:
    for part, values in found.items() if keep else ():
        with atomic(folder / f"{part}.npy") as file:
            np.save(file, values)


def _cached(folder: Path) -> dict[str, Floats]:
    """Files are mapped, not read: of a wide stage only some rows may be wanted."""
    parts = {part: folder / f"{part}.npy" for part in ("x_train", "x_test")}
    try:
        return {part: np.load(path, mmap_mode="r") for part, path in parts.items()}
    except (OSError, ValueError, EOFError):  # not there, or damaged: computed again and replaced
        return {}


def _name(public: Any) -> str:
    return json.dumps(public, sort_keys=True, default=str)


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty() or total < 5000:
        stage(label)
        yield lambda _advance: None
        return
    stage("")
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda advance: bar.update(task, advance=advance)
