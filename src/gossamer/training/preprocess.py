"""What is found on the records before the first round: private, paid for, in every node's ledger.

A short list of steps, `preprocess.steps_of`, each done in the same way: after the ledgers are open, before a reader or
a model sees a record. Every node's noised release goes to all others, and everyone makes the same of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load, save

from gossamer.accounting.releases import Event
from gossamer.errors import UserError
from gossamer.mechanism.reader import Book
from gossamer.mechanism.summaries import private_totals
from gossamer.methods import method_of
from gossamer.preprocess import Found, Released, Step, steps_of
from gossamer.results.rundir import RunDirectory, write_atomically
from gossamer.runtime.group import Group
from gossamer.training.assemble import Parts, records_of
from gossamer.training.plan import Plan


def preprocessed(parts: Parts, group: Group, book: Book, directory: RunDirectory) -> Parts:
    """The parts with records and loss as the models take them; these very parts where there is nothing to do."""
    data = parts.plan.config.data
    for place, step in enumerate(steps_of(data)):
        path = directory.path / file_of(step)
        if _kept_everywhere(path, group):  # a run that goes on: what was released once is not released again
            found = _read(path)
        else:
            released = _released(parts, group, book, step, place)
            found = step.found(data, parts.dataset, released)
            if group.first_here:
                write_atomically(path, save({name: value.contiguous() for name, value in found.items()}))
        if not step.check(data, parts.dataset, found):
            shapes = ", ".join(f"{name} of shape {tuple(value.shape)}" for name, value in found.items())
            raise UserError(f"{path} holds {shapes or 'nothing'}; put the run's own back.")
        parts = _with(parts, step, found)
    return parts


def file_of(step: Step) -> str:
    """Released, like a model; it lies beside the run, and a new row gets from model.json what is in it."""
    return f"{step.name}.safetensors"


def bytes_of_preprocessing(parts: Parts) -> int:
    """What the hosted nodes' releases take on their way to all others."""
    o, others = parts.plan, parts.plan.config.nodes - 1
    numbers = sum(step.summary(o.config.data, parts.dataset).size for step in steps_of(o.config.data))
    return len(parts.nodes) * others * 4 * numbers


def _with(parts: Parts, step: Step, found: Found) -> Parts:
    o, before = parts.plan, parts.dataset
    dataset = step.applied(o.config.data, before, found)
    if dataset.class_weights != before.class_weights:
        o = _weighted(o, dataset.class_weights)
    parts = replace(parts, dataset=dataset, plan=o)
    return parts if dataset.x_train is before.x_train else records_of(parts)


def _weighted(o: Plan, weights: tuple[float, ...]) -> Plan:
    """As if they had been declared, which after the release they might be. What was asked for stays as it was."""
    data = replace(o.config.data, class_weights=list(weights))
    config = o.config.model_copy(update={"data": data})
    return replace(o, config=config, method=method_of(config))


def _released(parts: Parts, group: Group, book: Book, step: Step, place: int) -> Released:
    """Every node's noised total goes to all others; one with more noise counts less, by public numbers."""
    o = parts.plan
    events = [node.before[place] for node in o.privacy.nodes]
    counts = [_count(event, events) for event in events]
    totals = private_totals(
        step.summary(o.config.data, parts.dataset),
        parts.records,
        parts.nodes,
        events=events[parts.nodes.start : parts.nodes.stop],
        stream=parts.stream(),
        book=book,
    )
    own = torch.tensor(counts[parts.nodes.start : parts.nodes.stop]).to(totals)
    n = len(events)
    units = sum(count * node.records for count, node in zip(counts, o.privacy.nodes, strict=True))
    noise = math.sqrt(
        sum((c * event.release.noise_multiplier) ** 2 for c, event in zip(counts, events, strict=True))
    )
    return Released(n * group.mean(own[:, None] * totals).double() / units, noise / units)


def _count(event: Event, events: Sequence[Event]) -> float:
    """(least σ / σ)²: 1 where all nodes have the same budget."""
    least = min(one.release.noise_multiplier for one in events)
    return (least / event.release.noise_multiplier) ** 2 if least else 1.0


def _kept_everywhere(path: Path, group: Group) -> bool:
    """On every machine or on none: a release that some have lost cannot be made again."""
    here = path.exists()
    there = group.join([here])
    if not here and any(there):
        raise UserError(
            f"{path} is gone, and other processes of the run have theirs; copy it from one of them, for what it holds "
            "was released once and is not drawn again."
        )
    if here and not all(there):
        raise UserError(
            f"{path} is here, and another process of the run has lost its copy; put it back there."
        )
    return here


def _read(path: Path) -> Found:
    try:
        found: dict[str, torch.Tensor] = load(path.read_bytes())
    except Exception as error:  # safetensors has its own for what is no such file
        raise UserError(f"{path} cannot be read ({type(error).__name__}); put the run's own back.") from None
    return found
