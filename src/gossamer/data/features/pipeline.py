"""The pipeline of `data.transform`: steps set up for the records' shape, fitted on public sets, applied, cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.data.arrays import Floats, share_rows
from gossamer.data.dataset import Dataset, digest
from gossamer.data.features.minilm import TextFeatures
from gossamer.data.features.patches import Patches
from gossamer.data.features.pretrained import Pretrained
from gossamer.data.features.steps import (
    FittedKind,
    Step,
    StepKind,
    as_table,
    named_steps,
    set_up,
    through,
    widest,
)
from gossamer.data.origins import WEIGHTS, atomic, cache_dir
from gossamer.errors import UserError
from gossamer.options.stage import progress

__all__ = ["Patches", "applied", "named_steps", "shape_after", "statements", "transformed"]

Load = Callable[[str, dict[str, Any]], Dataset]  # kind, options → a data set
Parts = Mapping[str, Floats]  # x_train and x_test
BLOCK_FLOATS = 1 << 20  # of the widest step in one block: larger ones leave the cache
LEAST_ROWS = 50  # of a block: a wide matrix is read once for each
VERSION = 1  # of what the steps compute; part of the cache's key
STORED = ("mnist", "fashion-mnist", "cifar10", "cifar100", "covertype", "adult", "digits")


def shape_after(transform: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a record after the steps; reads nothing."""
    built = set_up(named_steps(transform), shape)
    return built[-1].shape if built else shape


def every(kinds: Sequence[StepKind]) -> Iterator[StepKind]:
    """All steps, also those inside of others."""
    for kind in kinds:
        yield kind
        for branch in kind.branches:
            yield from every(branch)


def statements(transform: object) -> list[str]:
    """Return the sentences to print with every result on these features: the public weights they use."""
    kinds = every(named_steps(transform))
    names = dict.fromkeys(kind.weights for kind in kinds if isinstance(kind, Pretrained | TextFeatures))
    return [WEIGHTS[name].statement() for name in names]


def to_fit(built: Sequence[Step], before: Sequence[Step] = ()) -> Iterator[tuple[Step, list[Step]]]:
    """Every step that is fitted on a public set, in the order to do so, with the steps its records go through first."""
    for position, step in enumerate(built):
        reached = [*before, *built[:position]]
        for branch in step.branches:
            yield from to_fit(branch, reached)
        if step.fit is not None:
            yield step, reached


def transformed(
    dataset: Dataset, transform: Sequence[Any], load: Load, *, keep: bool, data_dir: Path | None = None
) -> Dataset:
    """The data set after its steps. `keep`: the result goes to the cache, for records that are public."""
    built = set_up(named_steps(transform), dataset.x_train.shape[1:], data_dir)
    public = {_name(step): _public(step, dataset, load) for step, _ in to_fit(built)}
    records, label = _parts(dataset), f"features of {dataset.name}"
    # What takes minutes comes first and is kept by itself: other steps can follow it, and other sets need it.
    first = built[: _costly_start(built)]
    rest = built[len(first) :]

    def compute() -> Parts:
        start = records
        if first:
            start = _computed(first, records, {}, lambda: _apply(first, records, label), keep)
        for step, before in to_fit(built):
            _fit(step, first, before, public[_name(step)])
        return _apply(rest, start, label) if rest else start

    slow = bool(public) or any(kind.costly for kind in every([step.of for step in built]))
    result = _computed(built, records, public, compute, keep and slow and bool(rest))
    moved = replace(dataset, x_train=np.array(result["x_train"]), x_test=np.array(result["x_test"]))
    return moved.noted(transform=json.dumps([as_table(step) for step in transform], ensure_ascii=False))


def applied(x: Floats, transform: object, load: Load, *, data_dir: Path | None = None) -> Floats:
    """New records through the same steps, fitted again on the same public sets; nothing of the records is kept."""
    built = set_up(named_steps(transform), x.shape[1:], data_dir)
    first = built[: _costly_start(built)]
    for step, before in to_fit(built):
        _fit(step, first, before, _loaded(step, x.shape[1:], load))
    return _apply(built, {"x": x}, "features")["x"]


def _costly_start(built: Sequence[Step]) -> int:
    """Count the steps, from the first, up to the last one that takes long; none of them may need a fit."""
    ends = [k + 1 for k, step in enumerate(built) if any(kind.costly for kind in every([step.of]))]
    return 0 if not ends or any(to_fit(built[: ends[-1]])) else ends[-1]


def _parts(dataset: Dataset) -> Parts:
    return {"x_train": dataset.x_train, "x_test": dataset.x_test}


def _kind(step: Step) -> FittedKind:
    assert isinstance(step.of, FittedKind)
    return step.of


def _name(step: Step) -> str:
    """The public set that a step is fitted on."""
    return json.dumps(_kind(step).public, sort_keys=True, default=str)


def _loaded(step: Step, shape: tuple[int, ...], load: Load) -> Dataset:
    options = dict(as_table(_kind(step).public))
    source = load(options.pop("kind"), options)
    its = source.x_train.shape[1:]
    if its != shape:
        raise UserError(f"data.transform: public = {_name(step)} has records of shape {its}, not {shape}.")
    return source


def _public(step: Step, dataset: Dataset, load: Load) -> Dataset:
    """The public set of a step, which must hold none of the training records."""
    source = _loaded(step, dataset.x_train.shape[1:], load)
    if source.name == dataset.name in STORED or share_rows(dataset.x_train, source.x_train):
        raise UserError(f"data.transform: public = {_name(step)} has training records; name another set.")
    return source


def _fit(step: Step, first: Sequence[Step], before: Sequence[Step], source: Dataset) -> None:
    """Fit on the public set, after the steps before it; what the costly ones at the start give is kept."""
    assert step.fit is not None
    order = np.random.default_rng(0).permutation(len(source.x_train))[: _kind(step).rows]
    if len(order) < 2:
        raise UserError(f"data.transform: public = {_name(step)} has {len(order)} records; 2 are needed.")
    records, label = _parts(source), f"public features of {source.name}"
    chosen = records["x_train"][np.sort(order)]
    if first:
        whole, own = _cached(_folder(first, records, {})), {"x_train": chosen, "x_test": chosen[:1]}
        if whole:
            chosen = whole["x_train"][np.sort(order)]
        else:
            keep = source.provenance.get("source") != "own file"
            chosen = _computed(first, own, {}, lambda: _apply(first, own, label), keep)["x_train"]
    rest = before[len(first) :]
    step.apply = step.fit(lambda: _blocks(rest, chosen, label))


def _apply(built: Sequence[Step], parts: Parts, label: str) -> dict[str, Floats]:
    result = {}
    for part, x in parts.items():
        result[part], at = np.empty((len(x), *(built[-1].shape if built else x.shape[1:])), np.float32), 0
        for block in _blocks(built, x, label):
            result[part][at : at + len(block)] = block.numpy()
            at += len(block)
    return result


@torch.no_grad()
def _blocks(built: Sequence[Step], x: Floats, label: str) -> Iterator[Tensor]:
    most = max([int(np.prod(x.shape[1:])), *map(widest, built)])
    rows = max(LEAST_ROWS, BLOCK_FLOATS // max(1, most))
    with progress(label, len(x)) as advance:
        for at in range(0, len(x), rows):
            block = torch.from_numpy(np.array(x[at : at + rows]))  # a copy: what is in a file stays as it is
            block = through(built, block)
            advance(len(block))
            yield block


def _folder(built: Sequence[Step], records: Parts, public: Mapping[str, Dataset]) -> Path:
    """Named after what the result depends on: the records, the steps with all their options, the public records."""
    fitted = {name: digest({"x_train": source.x_train}) for name, source in public.items()}
    text = json.dumps([VERSION, digest(records), [step.of.key() for step in built], fitted], sort_keys=True)
    return cache_dir() / "features" / hashlib.sha256(text.encode()).hexdigest()[:24]


def _computed(
    built: Sequence[Step],
    records: Parts,
    public: Mapping[str, Dataset],
    compute: Callable[[], Parts],
    keep: bool,
) -> Parts:
    """Return what is in the cache, or compute it and, to `keep`, put it there."""
    folder = _folder(built, records, public)
    result: Parts = _cached(folder)
    if not result:
        result = compute()
        for part, values in result.items() if keep else ():
            with atomic(folder / f"{part}.npy") as file:
                np.save(file, values)
    return result


def _cached(folder: Path) -> dict[str, Floats]:
    """Files are mapped, not read: of a wide stage only some rows may be wanted."""
    try:
        return {part: np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("x_train", "x_test")}
    except (OSError, ValueError, EOFError):  # not there, or damaged: computed again and replaced
        return {}
