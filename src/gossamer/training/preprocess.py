"""Preprocessing before the first round: each step releases a noised summary of the training records, and is paid for.

A step reads records through its summary alone, which `mechanism.summaries` releases. Everything else gets the released
numbers: what is computed from them is post-processing, and so are records that are changed by it one by one. The steps
come after the ledgers are open, before a reader or a model sees a record. Every node's noised release goes to all
others, and everyone computes the same from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from safetensors.torch import load, save
from scipy.special import ndtri
from torch import Tensor

from gossamer.accounting.profiles import gdp_mu
from gossamer.accounting.releases import Event, Gaussian
from gossamer.data.dataset import Dataset, Standard
from gossamer.data.source import Source, standardised
from gossamer.errors import UserError
from gossamer.mechanism.reader import Book
from gossamer.mechanism.summaries import (
    Columns,
    Histogram,
    Labels,
    Moments,
    SecondMoment,
    Summary,
    components,
    dyadic_edges,
    private_totals,
    quantiles,
    release_of,
    unpacked,
)
from gossamer.methods import method_of
from gossamer.results.rundir import RunDirectory, write_atomically
from gossamer.runtime.group import Group

if TYPE_CHECKING:
    from gossamer.training.assemble import Parts
    from gossamer.training.plan import Plan

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Released:
    """All nodes' releases as one: an estimate of the mean vector over what is protected, and what noise it has."""

    mean: Tensor  # (size,)
    noise: float  # the deviation of every entry, from public numbers


class Step(Protocol):
    name: ClassVar[str]  # of its file, and in the certificate
    part: ClassVar[float]  # of the share of ε that pays for all steps, as 1/σ² goes, relative to the others
    description: ClassVar[str]  # what is released, for people
    released_as: ClassVar[type[Gaussian]]  # as its summary is

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        """Return the summary that is released of these records; its size follows from public facts."""
        ...

    def compute(self, source: Source, dataset: Dataset, released: Released) -> Values:
        """Compute from the release what is stored with the run, by name."""
        ...

    def check(self, source: Source, dataset: Dataset, values: Values) -> bool:
        """Return True if the values have the names and shapes that `compute` gives."""
        ...

    def apply(self, source: Source, dataset: Dataset, values: Values) -> Dataset:
        """Apply the values to the records."""
        ...


class ClassWeights:
    name: ClassVar[str] = "class-weights"
    part: ClassVar[float] = 1.0  # a few counts of thousands of records: they need less than columns do
    description: ClassVar[str] = "how many records each class has, for class weights"
    released_as: ClassVar[type[Gaussian]] = Labels.released_as

    def summary(self, source: Source, dataset: Dataset) -> Labels:
        if dataset.classes is None or dataset.y_train.ndim != 1:
            raise UserError("data.class_weights = 'private' needs records of one class each; leave it out.")
        return Labels(dataset.classes)

    def compute(self, source: Source, dataset: Dataset, released: Released) -> Values:
        """1 / (C · share) of each class, within the limits; a share is not taken to be below its own noise."""
        shares = released.mean.double().clamp_min(max(released.noise, 1e-12))
        shares = shares / shares.sum()
        weights = 1 / (len(shares) * shares)
        return {"weights": weights.clamp(1 / source.most_weight, source.most_weight)}

    def check(self, source: Source, dataset: Dataset, values: Values) -> bool:
        weights = values.get("weights", torch.zeros(0))
        return weights.shape == (dataset.classes,) and bool((weights > 0).all())

    def apply(self, source: Source, dataset: Dataset, values: Values) -> Dataset:
        return replace(dataset, class_weights=tuple(values["weights"].double().tolist()))


class Components:
    name: ClassVar[str] = "components"
    part: ClassVar[float] = 4.0
    description: ClassVar[str] = "the second moment of the records, for principal components"
    released_as: ClassVar[type[Gaussian]] = SecondMoment.released_as

    def summary(self, source: Source, dataset: Dataset) -> SecondMoment:
        return SecondMoment(math.prod(dataset.x_train.shape[1:]))

    def compute(self, source: Source, dataset: Dataset, released: Released) -> Values:
        assert source.pca is not None
        width = self.summary(source, dataset).width
        return {"components": components(unpacked(released.mean, width), source.pca).contiguous()}

    def check(self, source: Source, dataset: Dataset, values: Values) -> bool:
        width = self.summary(source, dataset).width
        return set(values) == {"components"} and values["components"].shape == (source.pca, width)

    def apply(self, source: Source, dataset: Dataset, values: Values) -> Dataset:
        return source.finished(dataset, components=values["components"].float().numpy())


EDGES = dyadic_edges(levels=20, steps=16)
FINEST = min(b - a for a, b in pairwise(EDGES))
TAIL = 0.05  # on each side: the spread is that of the 90% between
NOTICEABLE = 2.0  # standard deviations of noise: a share or a variance below may be noise alone


class _Standardise:
    """The common part of both kinds: a middle and a spread of u, the value in its declared range."""

    part: ClassVar[float] = 4.0

    def columns(self, source: Source, dataset: Dataset) -> Columns:
        assert source.standardise is not None
        return Columns(source.standardise.places(source, dataset), *source.standardise.bounds)

    def _in_units(self, columns: Columns, middle: Tensor, spread: Tensor) -> Values:
        """In the units of the records."""
        length = columns.high - columns.low
        return {"middle": columns.low + length * middle, "spread": length * spread}

    def check(self, source: Source, dataset: Dataset, values: Values) -> bool:
        width = len(self.columns(source, dataset).places)
        return set(values) == {"middle", "spread"} and all(v.shape == (width,) for v in values.values())

    def apply(self, source: Source, dataset: Dataset, values: Values) -> Dataset:
        columns = self.columns(source, dataset)
        standard = Standard(
            places=columns.places,
            low=columns.low,
            high=columns.high,
            middle=tuple(values["middle"].double().tolist()),
            spread=tuple(values["spread"].double().tolist()),
        )
        scaled = standardised(dataset, standard)
        # Private components come next, of columns as they are now.
        return scaled if source.private_components else source.finished(scaled)


class ByMoments(_Standardise):
    name: ClassVar[str] = "standardise"
    description: ClassVar[str] = "sums of every column and of its squares, for its mean and deviation"
    released_as: ClassVar[type[Gaussian]] = Moments.released_as

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        return Moments(self.columns(source, dataset))

    def compute(self, source: Source, dataset: Dataset, released: Released) -> Values:
        columns = self.columns(source, dataset)
        mean, variance = Moments(columns).read(released.mean)
        # A variance below its own noise may be anything down to 0: then the noise is what is known of it.
        unsure = released.noise * math.sqrt(len(columns.places))
        return self._in_units(columns, mean.clamp(0, 1), variance.clamp_min(max(unsure, 1e-12)).sqrt())


class ByQuantiles(_Standardise):
    name: ClassVar[str] = "standardise"
    description: ClassVar[str] = "a histogram of every column, for its median and spread"
    released_as: ClassVar[type[Gaussian]] = Histogram.released_as

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        return Histogram(self.columns(source, dataset), EDGES)

    def compute(self, source: Source, dataset: Dataset, released: Released) -> Values:
        columns = self.columns(source, dataset)
        histogram = Histogram(columns, EDGES)
        # The noise of half of the bins together; a tail that is hidden by it is not looked for.
        unsure = released.noise * math.sqrt(len(columns.places) * histogram.bins / 2)
        tail = max(TAIL, NOTICEABLE * unsure)
        if tail > 0.4:  # all is noise: the declared range is all that is known
            half = torch.full((len(columns.places),), 0.5, dtype=torch.float64)
            return self._in_units(columns, half, half)
        shares, noise = histogram.read(released.mean), released.noise * math.sqrt(len(columns.places))
        at = quantiles(_without_noise_bins(shares, noise), EDGES, (tail, 0.5, 1 - tail))
        spread = (at[:, 2] - at[:, 0]) / (2 * float(ndtri(1 - tail)))
        # Nearly all in the finest bin, as with a rare yes among many noes: the range is the better measure then.
        middle, wide = at[:, 1], spread > 2 * FINEST
        return self._in_units(columns, middle, torch.where(wide, spread, 1.0))


def _without_noise_bins(shares: Tensor, noise: float) -> Tensor:
    """Without bins that noise alone may have filled: most are empty, and one far out would stretch the column.

    Where that leaves less than half of a column, as of one that is spread over many bins, all of them count.
    """
    clear = torch.where(shares > NOTICEABLE * noise, shares, 0.0)
    return torch.where(clear.sum(1, keepdim=True) > 0.5, clear, shares)


def steps_of(source: Source) -> tuple[Step, ...]:
    """Components come last: they are of the columns as they are then."""
    steps: list[Step] = []
    if source.class_weights == "private":
        steps.append(ClassWeights())
    if source.standardise is not None:
        steps.append(ByMoments() if source.standardise.kind == "moments" else ByQuantiles())
    if source.private_components:
        steps.append(Components())
    return tuple(steps)


def planned_events(
    steps: Sequence[Step], adjacency: str, *, epsilon: float | None, delta: float, times: int
) -> tuple[Event, ...]:
    """One event a step, at −k, …, −1, ahead of draw 0: together, so many times, they cost `epsilon`; None: no noise.

    All are Gaussians on all records: their μ² add up, and each gets its part of the whole.
    """
    whole = sum(step.part for step in steps)
    event = partial(paid_event, adjacency=adjacency, epsilon=epsilon, delta=delta, times=times)
    draws = enumerate(steps, start=-len(steps))
    return tuple(event(draw, step.released_as, part=step.part / whole) for draw, step in draws)


def paid_event(
    draw: int,
    kind: type[Gaussian],
    adjacency: str,
    *,
    epsilon: float | None,
    delta: float,
    times: int,
    part: float = 1.0,
) -> Event:
    """A release of all records that takes this part of μ(ε, δ)², so many times; without noise if ε is None."""
    multiplier = 0.0
    if epsilon is not None:
        unit = kind(sigma=1.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency)
        mu = gdp_mu(epsilon, delta) * math.sqrt(part)
        multiplier = unit.shift(adjacency) * math.sqrt(times) / mu * (1 + 1e-9)
    return Event(draw, release_of(kind, multiplier, adjacency))


def preprocessed(parts: Parts, group: Group, book: Book, directory: RunDirectory) -> Parts:
    """The parts with preprocessed records and loss weights; the same object if there is no step."""
    data = parts.plan.config.data
    for place, step in enumerate(steps_of(data)):
        path = directory.path / file_of(step)
        if stored_everywhere(path, group):  # a resumed run: nothing is released twice
            values = _read(path)
        else:
            released = _released(parts, group, book, step, place)
            values = step.compute(data, parts.dataset, released)
            if group.first_here:
                write_atomically(path, save({name: value.contiguous() for name, value in values.items()}))
        if not step.check(data, parts.dataset, values):
            shapes = ", ".join(f"{name} of shape {tuple(value.shape)}" for name, value in values.items())
            raise UserError(f"{path} holds {shapes or 'nothing'}; put the run's own back.")
        parts = _with(parts, step, values)
    return parts


def file_of(step: Step) -> str:
    """The name of the file with what was released; model.json has the same for new rows."""
    return f"{step.name}.safetensors"


def bytes_of_preprocessing(parts: Parts) -> int:
    """Return the bytes of the hosted nodes' releases on their way to all others."""
    o, others = parts.plan, parts.plan.config.nodes - 1
    numbers = sum(step.summary(o.config.data, parts.dataset).size for step in steps_of(o.config.data))
    return len(parts.nodes) * others * 4 * numbers


def _with(parts: Parts, step: Step, values: Values) -> Parts:
    o, before = parts.plan, parts.dataset
    dataset = step.apply(o.config.data, before, values)
    if dataset.class_weights != before.class_weights:
        o = _weighted(o, dataset.class_weights)
    parts = replace(parts, dataset=dataset, plan=o)
    return parts if dataset.x_train is before.x_train else parts.with_dataset(dataset)


def _weighted(o: Plan, weights: tuple[float, ...]) -> Plan:
    """The plan as if these weights had been declared; `asked` stays as it was."""
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
    noise = math.sqrt(sum((c * event.release.noise_multiplier) ** 2 for c, event in zip(counts, events, strict=True)))
    return Released(n * group.mean(own[:, None] * totals).double() / units, noise / units)


def _count(event: Event, events: Sequence[Event]) -> float:
    """(least σ / σ)²: 1 where all nodes have the same budget."""
    least = min(one.release.noise_multiplier for one in events)
    return (least / event.release.noise_multiplier) ** 2 if least else 1.0


def stored_everywhere(path: Path, group: Group) -> bool:
    """On every machine or on none: a release that some have lost cannot be made again."""
    here = path.exists()
    there = group.join([here])
    if not here and any(there):
        raise UserError(
            f"{path} is gone, and other processes of the run have theirs; copy it from one of them, for what it holds "
            "was released once and is not drawn again."
        )
    if here and not all(there):
        raise UserError(f"{path} is here, and another process of the run has lost its copy; put it back there.")
    return here


def _read(path: Path) -> Values:
    try:
        values: dict[str, torch.Tensor] = load(path.read_bytes())
    except Exception as error:  # safetensors has its own for what is no such file
        raise UserError(f"{path} cannot be read ({type(error).__name__}); put the run's own back.") from None
    return values
