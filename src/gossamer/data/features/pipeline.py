"""The pipeline of `data.transform`: steps set up for the records' shape, fitted on public sets, applied, cached."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from gossamer.data.arrays import share_rows
from gossamer.data.dataset import Dataset, digest
from gossamer.data.features.patches import Patches
from gossamer.data.features.pretrained import Pretrained
from gossamer.data.features.steps import STEPS, Shape, Step, Straighten
from gossamer.data.fetch import atomic, cache_dir
from gossamer.data.weights import KNOWN
from gossamer.errors import UserError
from gossamer.options.registry import Option
from gossamer.options.sentences import short
from gossamer.options.stage import stage
from gossamer.options.words import type_words


def options_of(make: Callable[..., Any]) -> tuple[Option, ...]:
    return tuple(
        Option(p.name, p.annotation, p.default, required=p.default is p.empty, meaning="")
        for p in inspect.signature(make, eval_str=True).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    )


def check_options(table: str, kind: str, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse, in one sentence, a key that `make` does not take, a value of the wrong type, or a key that is missing."""
    known = {option.name: option for option in options_of(make)}
    for name, value in given.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no options"
            raise UserError(f"{table}.{name} is not an option of kind '{kind}'; {takes}.")
        try:
            TypeAdapter(known[name].type).validate_python(value, strict=True)
        except ValidationError:
            wanted = type_words(known[name].type)
            raise UserError(
                f"{table}.{name} = {short(value)} does not fit; kind '{kind}' takes {wanted}."
            ) from None
    for option in known.values():
        if option.required and option.name not in given:
            raise UserError(f"{table}.{option.name} is missing; kind '{kind}' needs it.")


COSTLY = ("scattering", "patches", "pretrained")
_VERSIONS = {"projection": {"version": 2}}  # of what a step computes, where it is not the first


class Beside:
    """The same record through several lists of steps, the results one after the other as one vector."""

    def __init__(self, before: Shape, *, branches: list[list[Any]]) -> None:
        if not branches:
            raise UserError("data.transform: beside has branches = []; give at least one list of steps.")
        self.branches = [set_up(named_steps(branch), before) for branch in branches]
        self.shape: Shape = (sum(math.prod(_after(branch, before)) for branch in self.branches),)
        self.widest = max((widest(step) for branch in self.branches for step in branch), default=0)

    def __call__(self, block: Tensor) -> Tensor:
        return torch.cat([through(branch, block).flatten(1) for branch in self.branches], 1)


KINDS: dict[str, Callable[..., Step]] = {
    **STEPS,
    "straighten": Straighten,
    "patches": Patches,
    "pretrained": Pretrained,
    "beside": Beside,
}


def named_steps(transform: object) -> list[dict[str, Any]]:
    """The user's list, checked: every entry a table with a kind, or the kind alone."""
    if not isinstance(transform, list | tuple):
        raise UserError(
            f"data.transform = {transform!r} must be a list of steps, for example ['scattering', 'unit-norm']."
        )
    steps = []
    for entry in transform:
        step = {"kind": entry} if isinstance(entry, str) else entry
        kind = step.get("kind") if isinstance(step, Mapping) else None
        if not isinstance(kind, str) or kind not in KINDS:
            raise UserError(f"data.transform has {entry!r}; a step is one of {', '.join(KINDS)}.")
        check_options("data.transform", kind, KINDS[kind], {k: v for k, v in step.items() if k != "kind"})
        steps.append(dict(step))
    return steps


def set_up(steps: Sequence[Mapping[str, Any]], shape: Shape) -> list[Step]:
    """The steps for records of that shape, not fitted yet."""
    made: list[Step] = []
    for step in steps:
        made.append(KINDS[step["kind"]](shape, **{k: v for k, v in step.items() if k != "kind"}))
        shape = made[-1].shape
    return made


def shape_after(transform: object, shape: Shape) -> Shape:
    """What a record's shape becomes; reads nothing."""
    return _after(set_up(named_steps(transform), shape), shape)


def to_fit(made: Sequence[Step], before: Sequence[Step] = ()) -> Iterator[tuple[Any, list[Step]]]:
    """Every step that is fitted on a public set, in the order to do so, with the steps its records go through first."""
    for position, step in enumerate(made):
        reached = [*before, *made[:position]]
        if isinstance(step, Beside):
            for branch in step.branches:
                yield from to_fit(branch, reached)
        elif hasattr(step, "fit"):
            yield step, reached


def every(made: Sequence[Step]) -> Iterator[Any]:
    """All steps, also those inside of others."""
    for step in made:
        if isinstance(step, Beside):
            for branch in step.branches:
                yield from every(branch)
        else:
            yield step


def written_out(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """With all options, also those left at their default: what the result depends on."""
    written = []
    for step in steps:
        options = {o.name: o.default for o in options_of(KINDS[step["kind"]]) if not o.required}
        full = {**options, **step, **_VERSIONS.get(step["kind"], {})}
        if step["kind"] == "pretrained":
            full["sha256"] = KNOWN[full["weights"]].digest
        if step["kind"] == "beside":
            full["branches"] = [written_out(named_steps(branch)) for branch in step["branches"]]
        written.append(full)
    return written


def statements(transform: object) -> list[str]:
    """What must stand beside every result on these features: the public weights they owe to."""
    said: list[str] = []
    for step in named_steps(transform):
        if step["kind"] == "pretrained":
            said.append(KNOWN[written_out([step])[0]["weights"]].statement())
        for branch in step.get("branches", ()):
            said += statements(branch)
    return list(dict.fromkeys(said))


def public_names(transform: object) -> list[str]:
    """The public sets and weights that these steps need, by their names."""
    names: list[str] = []
    for step in named_steps(transform):
        full = written_out([step])[0]
        public = full.get("public")
        names += [public["kind"] if isinstance(public, Mapping) else public] if public else []
        names += [full["weights"]] if "weights" in full else []
        for branch in step.get("branches", ()):
            names += public_names(branch)
    return list(dict.fromkeys(names))


def costly(step: Mapping[str, Any]) -> bool:
    """Does it, or a step inside it, take long?"""
    if step["kind"] == "beside":
        return any(costly(inner) for branch in step["branches"] for inner in named_steps(branch))
    return step["kind"] in COSTLY


def widest(step: Step) -> int:
    """How many numbers it holds for a record at a time: of its result, or of what leads to it."""
    return max(math.prod(step.shape), getattr(step, "widest", 0))


def _after(steps: Sequence[Step], before: Shape) -> Shape:
    return steps[-1].shape if steps else before


def through(steps: Sequence[Step], block: Tensor) -> Tensor:
    for step in steps:
        block = step(block)
    return block


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
