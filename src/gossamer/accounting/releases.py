"""What one release was: mechanism, noise, sensitivity, sampling; its price is decided by the accountants."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gossamer.errors import UserError

MECHANISMS = (
    "gaussian",
    "laplace",
    "truncated-laplace",
    "truncated-gaussian",
    "generalised-gaussian",
    "own-norm-gaussian",
    "raw-decision",
    "none",
)
SAMPLINGS = ("poisson", "fixed-size", "full", "one-pass")
ADJACENCIES = ("add-remove", "replace-one")
PARTS = ("bound", "shape", "dimensions", "pass")

Parts = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The kind of a release, everything but when it happened.

    sigma        scale of the noise on the released *sum*, before division by the public lot size: the
                 standard deviation of a Gaussian, b of a Laplace density exp(−|z|/b), σ of a generalised
                 Gaussian exp(−(|z|/σ)^shape); of a truncated density the scale before truncation
    sensitivity  the largest norm one record's contribution can have (the clip); replace-one doubles it,
                 and the accountant does that, not the event. `inf` if nothing bounds it
    rate         probability that a given record is in the lot (fixed-size: lot / J; full: 1)
    adjacency    the relation the run declared; the accountants can price either
    parts        further constants: `bound` (truncation), `shape` (generalised Gaussian), `dimensions`
                 (coordinates with independent noise, each priced at the whole sensitivity), `pass` (which
                 pass over the data a one-pass lot belongs to)
    """

    mechanism: str
    sigma: float
    sensitivity: float
    sampling: str
    rate: float
    adjacency: str
    parts: Parts = ()

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise UserError(_not_one_of("mechanism", self.mechanism, MECHANISMS))
        if self.sampling not in SAMPLINGS:
            raise UserError(_not_one_of("sampling", self.sampling, SAMPLINGS))
        if self.adjacency not in ADJACENCIES:
            raise UserError(_not_one_of("adjacency", self.adjacency, ADJACENCIES))
        if not 0.0 < self.rate <= 1.0:
            raise UserError(f"event rate = {self.rate!r} must lie in (0, 1]")
        if not 0.0 <= self.sigma < math.inf:
            raise UserError(f"event sigma = {self.sigma!r} must be a finite number, at least 0")
        if not self.sensitivity > 0.0:
            raise UserError(f"event sensitivity = {self.sensitivity!r} must be positive (inf if unbounded)")
        for name, _ in self.parts:
            if name not in PARTS:
                raise UserError(_not_one_of("parts", name, PARTS))

    @property
    def noise_multiplier(self) -> float:
        """σ in units of the sensitivity."""
        return self.sigma / self.sensitivity

    def part(self, name: str, default: float | None = None) -> float:
        """One of the further constants; without a default its absence is an error."""
        for key, value in self.parts:
            if key == name:
                return value
        if default is None:
            raise UserError(f"event of mechanism '{self.mechanism}' lacks the constant '{name}' in parts")
        return default

    def scaled(self, factor: float) -> "Release":
        """The same release with its noise multiplied by `factor`."""
        return replace(self, sigma=self.sigma * factor)


@dataclass(frozen=True, slots=True)
class Event(Release):
    """One release of one node; `step` is the index of the draw: 0, 1, 2, … of this node."""

    step: int = 0

    @property
    def release(self) -> Release:
        return Release(*(getattr(self, name) for name in _KIND))

    def to_json(self) -> str:
        """One line of strict JSON; floats are written so that they read back exactly."""
        parts = "".join(f',"{name}":{_number(value)}' for name, value in self.parts)
        return (
            f'{{"step":{self.step},"mechanism":"{self.mechanism}","sigma":{_number(self.sigma)},'
            f'"sensitivity":{_number(self.sensitivity)},"sampling":"{self.sampling}",'
            f'"rate":{_number(self.rate)},"adjacency":"{self.adjacency}"{parts}}}'
        )

    @classmethod
    def from_json(cls, line: str | Mapping[str, Any]) -> "Event":
        """Read what `to_json` wrote; keys that are not an event's (the chain) are ignored."""
        data = json.loads(line) if isinstance(line, str) else line
        return cls(
            step=int(data["step"]),
            mechanism=data["mechanism"],
            sigma=float(data["sigma"]),
            sensitivity=float(data["sensitivity"]),
            sampling=data["sampling"],
            rate=float(data["rate"]),
            adjacency=data["adjacency"],
            parts=tuple((name, float(data[name])) for name in PARTS if name in data),
        )


_KIND = tuple(field.name for field in fields(Release))


def collate(events: Iterable[Release]) -> list[tuple[Release, int]]:
    """Equal releases counted, in order of first appearance."""
    counts: dict[Release, int] = {}
    for event in events:
        kind = event.release if isinstance(event, Event) else event
        counts[kind] = counts.get(kind, 0) + 1
    return list(counts.items())


def of_several_runs(runs: Iterable[Sequence[Event]]) -> list[Event]:
    """The events of runs on the same records: a pass of one run is no pass of another, so they are numbered apart."""
    together: list[Event] = []
    first = 0.0
    for events in runs:
        passes = 1 + max((event.part("pass", 0.0) for event in events), default=0.0)
        together += [
            replace(
                event,
                parts=tuple((k, v + first if k == "pass" else v) for k, v in event.parts),
            )
            if event.sampling == "one-pass"
            else event
            for event in events
        ]
        first += passes
    return together


def _number(value: float) -> str:
    # JSON has no infinity; a string keeps the line strict, and float("inf") reads it back.
    return repr(float(value)) if math.isfinite(value) else f'"{float(value)!r}"'


def _not_one_of(key: str, value: object, known: tuple[str, ...]) -> str:
    return f"event {key} = {value!r} is not one of {', '.join(known)}"
