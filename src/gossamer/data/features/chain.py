"""A list of steps, checked and set up for the records' shape; `beside` puts several lists next to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer.data.features.options import check_options, options_of
from gossamer.data.features.patches import Patches
from gossamer.data.features.pretrained import Pretrained
from gossamer.data.features.steps import STEPS, Shape, Step
from gossamer.data.features.straighten import Straighten
from gossamer.data.weights import KNOWN
from gossamer.errors import UserError

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
            full["sha256"] = KNOWN[full["weights"]].sha256
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
