"""The same search where nodes write one shared model: does a record move a write by more than Lemma 4 prices?

The lemma holds if every local step between two writes is non-expansive: then what a record moves in one step never
grows. So records are looked for that grow: lots that balance around a model (the curvature of a logistic loss is
largest where nothing pulls), one record off the balance, and all turns to the end of the pass to grow in. The write and
the figure on file are those of the run's own reader, at the run's own step sizes; only its noise is left out.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gossamer.accounting.releases import Event
from gossamer.auditing.odd_records import OddRecord, odd_records
from gossamer.auditing.sensitivity import (
    OTHER,
    THOROUGH,
    THOROUGH_SECONDS,
    Movement,
    Searched,
    distances,
)
from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.reader import Records
from gossamer.mechanism.sampling import Lot, Sampler
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.lemma4 import record_bound
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

WRITE = "its own node's write"
_FEATURES, _LOT = (
    4,
    64,
)  # a whole lot can turn against a record: the longer it is, the more an expansive step shows
_FAR = 20.0  # of a model whose slopes are 1 where it is wrong
_MOST_TURNS = 24  # of a pass that are played: its last ones
_NODES = 2  # of a scene: the record's, and one more

Steps = Callable[[int], float]  # turn → step size
Lots = Callable[[int], tuple[Tensor, Tensor]]  # so many records and their labels


class Noiseless(Stream):
    """Zeros where normal noise would be."""

    def __init__(self) -> None:
        super().__init__(bytes(16), is_seeded=True)

    def normal_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        out: Any,
        scales: Any,
        *,
        accumulate: bool = False,
        offset: int = 0,
    ) -> None:
        if not accumulate:
            out[...] = 0.0


@dataclass(frozen=True)
class DealtLots:
    """A pass as it was dealt: lot j has the rows j·b … of every node, and lot `turn` the record, or its empty place."""

    rates: Sequence[float]
    turns: int
    lot: int
    turn: int
    present: bool
    disjoint: bool
    kind: ClassVar[str] = "one-pass"

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        j = step % self.turns
        rows = torch.arange(j * self.lot, (j + 1) * self.lot).repeat(len(sizes), 1)
        rows = torch.cat([rows, torch.full((len(sizes), 1), sizes[0] - 1)], 1)
        mask = torch.ones(rows.shape, dtype=torch.bool)
        mask[:, -1] = False
        mask[0, -1] = self.present and j == self.turn
        return Lot(rows, mask)

    def passes(self, step: int) -> list[int] | None:
        return None  # a window is within one

    def lot_numbers(self, step: int) -> list[int] | None:
        return None

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        raise NotImplementedError


class Sensitivities:
    """A ledger in memory: what was priced."""

    def __init__(self) -> None:
        self.priced: dict[int, float] = {}

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        for nodes, event in releases:
            self.priced |= dict.fromkeys(map(int, nodes), event.release.sensitivity)


@dataclass(frozen=True)
class Window:
    """Some turns of a run, of which the last one ends with a write: `turn` of them has the record in its lot."""

    first: int
    turns: int
    turn: int

    @property
    def description(self) -> str:
        if self.turns == 1:
            return f"write of turn {self.first}"
        return f"turns {self.first} to {self.first + self.turns - 1}, record in number {self.turn + 1}"


@dataclass(frozen=True)
class Trial:
    window: Window
    lots: Lots
    lots_kind: str
    model: Tensor  # (C, d) the shared model, and the local ones, before the window
    model_kind: str
    record: OddRecord


def search_writes(
    o: Plan,
    *,
    steps: Steps | None = None,
    tries: int = THOROUGH,
    seconds: float = THOROUGH_SECONDS,
    seed: int | None = None,
    on_try: Callable[[int, int], None] = lambda done, of: None,
) -> Searched:
    """Try so many records and lots. `steps` are the run's step sizes, unless a test has others."""
    if o.config.algorithm.controller == "local":
        raise UserError('there is nothing to search: with algorithm.controller = "local" nobody writes.')
    parts = assemble(Plan.of(on_small_lots(o.asked, o.classes or 2), force=o.forced))
    algorithm = parts.plan.algorithm
    assert isinstance(algorithm, WithoutReplacement)
    seed = o.config.seed if seed is None else seed
    game = Game(parts, steps or algorithm.lr, record_bound(o.config))
    found, start = Searched(), time.perf_counter()
    for trial in game.plan(_windows(o, game.steps), seed):
        if found.tried >= tries or time.perf_counter() - start > seconds:
            break
        found.tried += 1
        for movement in game.measure(trial):
            found.note(movement)
        on_try(found.tried, tries)
    found.seconds = time.perf_counter() - start
    found.in_time = found.seconds <= seconds
    return found


def on_small_lots(config: RunConfig, classes: int) -> RunConfig:
    """The same releases on lots of a few short records: what Lemma 4 says holds for lots and records of any size."""
    data = {
        "kind": "synthetic-classification",
        "n": config.nodes,
        "features": _FEATURES,
        "classes": classes,
        "test": 0,
        "records": _LOT,
    }
    asked = config.privacy.sampling
    small = {
        name: _LOT if name == "lot" else getattr(asked, name)
        for name in ("lot", "rate")
        if hasattr(asked, name)
    }
    sampling = replace(asked, **{k: v for k, v in small.items() if v is not None})  # type: ignore[type-var]
    return config.model_copy(
        update={
            "data": datasets.parse(data),
            "privacy": config.privacy.model_copy(update={"sampling": sampling}),
        }
    )


def _windows(o: Plan, steps: Steps) -> list[Window]:
    """Of the first pass, the last, and the one with the longest step; the record early, late and alone."""
    rounds, turns = o.config.rounds, 1
    if o.privacy.sampling.disjoint and o.config.algorithm.controller != "global":
        turns = min(rounds, max(1, math.ceil(1 / max(node.rate for node in o.privacy.nodes))))
    longest = max(range(rounds), key=steps)
    ends = sorted({min(rounds, (t // turns + 1) * turns) for t in (0, longest, rounds - 1)}, reverse=True)
    played = min(turns, _MOST_TURNS)
    found = [
        Window(end - played, played, turn) for end in ends for turn in sorted({0, played // 2, played - 1})
    ]
    return found + [Window(end - 1, 1, 0) for end in ends if played > 1]


class Game:
    """Plays the turns of a window with and without a record, and compares what is written."""

    def __init__(self, parts: Parts, steps: Steps, bound: float) -> None:
        self._parts, self.steps, self._bound = parts, steps, bound
        self._classes = parts.plan.classes or 1
        self._width = parts.plan.stack.dim // self._classes

    def plan(self, windows: list[Window], seed: int) -> Iterator[Trial]:
        """Records that grow most first, then odd ones."""
        chance = torch.Generator().manual_seed(seed)
        axis = torch.eye(self._width)[0]
        signs = torch.ones(self._classes, 1)
        signs[0] = -1
        models = [
            (torch.zeros(self._classes, self._width), "a model from zero"),
            (signs * axis * _FAR / self._bound, "a model that is wrong about it"),
        ]
        label = torch.tensor(0)
        straight = [
            OddRecord(sign * self._bound * axis, label, f"{told} the others' axis, labelled 0")
            for sign, told in ((1, "along"), (-1, "against"))
        ]
        lots = self._backgrounds(self._bound * axis, chance)
        for window, background, record, model in itertools.product(windows, lots, straight, models):
            yield Trial(window, *background, *model, record)
        known = self._bound * torch.nn.functional.normalize(torch.randn(8, self._width, generator=chance))
        for n, record in enumerate(odd_records(known, label.expand(8), self._classes, seed)):
            yield Trial(windows[n % len(windows)], *lots[n % len(lots)], *models[n % 2], record)

    def _backgrounds(self, axis: Tensor, chance: torch.Generator) -> list[tuple[Lots, str]]:
        last = self._classes - 1

        def balanced(count: int) -> tuple[Tensor, Tensor]:
            """Both labels of class 0 along one axis, as often: nothing pulls at zero."""
            return axis.expand(count, -1), torch.tensor([0, last]).repeat(count)[:count]

        def opposed(count: int) -> tuple[Tensor, Tensor]:
            """All with one label, every other one mirrored: all classes balance."""
            signs = torch.tensor([1.0, -1.0]).repeat(count)[:count, None]
            return signs * axis, torch.zeros(count, dtype=torch.int64)

        def nothing(count: int) -> tuple[Tensor, Tensor]:
            return torch.zeros(count, self._width), torch.zeros(count, dtype=torch.int64)

        def random(count: int) -> tuple[Tensor, Tensor]:
            generator = torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=chance)))
            x = torch.nn.functional.normalize(torch.randn(count, self._width, generator=generator))
            return self._bound * x, torch.randint(self._classes, (count,), generator=generator)

        return [
            (opposed, "balanced records"),
            (balanced, "records of two labels"),
            (nothing, "blank records"),
            (random, "random records"),
        ]

    def measure(self, trial: Trial) -> list[Movement]:
        x, y = trial.lots(trial.window.turns * _LOT)
        record = trial.record
        x, y = torch.cat([x, record.x[None].to(x)]), torch.cat([y, record.y[None].to(y)])
        (with_it, priced), (without, _) = (self._write(trial, x, y, present) for present in (True, False))
        apart = distances(with_it.flatten(1).double(), without.flatten(1).double())
        told = f"{trial.model_kind}, lots of {_LOT} {trial.lots_kind}, {trial.window.description}"
        # A model of length 20 in float32 is a grid of 2e-6, and a step may be a thousandth. At most so far, with a
        # rounding in each turn of the model and of its lot's sum; it is shown beside the figure, and the certificate
        # says that no proof covers it.
        lengths = with_it.flatten(1).norm(dim=1) + without.flatten(1).norm(dim=1)
        rounding = 2.0**-23 * (1 + trial.window.turns) * (lengths.double() / priced + _LOT)
        # Under replace-one the price is of two such records: each is held to its half.
        return [
            Movement(place, float(apart[i]) / priced, allowed, record.kind, told, float(rounding[i]))
            for i, (place, allowed) in enumerate(((WRITE, 1.0), (OTHER, 0.0)))
        ]

    @torch.no_grad()
    def _write(self, trial: Trial, x: Tensor, y: Tensor, present: bool) -> tuple[Tensor, float]:
        """(nodes, C, d) what the nodes would write at the end of the window, and what the first one's is priced at."""
        size, nodes = len(x), len(self._parts.nodes)
        parts, book, window, public = self._parts, Sensitivities(), trial.window, trial.model
        real = parts.sampler
        dealt = DealtLots(
            rates=real.rates,
            turns=window.turns,
            lot=_LOT,
            turn=(window.turn + window.first) % window.turns,
            present=present,
            disjoint=real.disjoint,
        )
        held = Records(x.repeat(nodes, 1), y.repeat(nodes), [size] * nodes)
        reader = replace(parts, records=held, sampler=dealt).reader(book, Noiseless())
        nobody = torch.zeros(nodes, self._classes, dtype=torch.bool)
        reader.local = public.repeat(nodes, 1, 1)
        last = window.first + window.turns - 1
        for t in range(window.first, last):
            reader.open(t, self.steps(t))
            reader.step_locally(nobody)
        reader.open(last, self.steps(last))
        reader.prepare(~nobody)
        written = [reader.write(i, public, ~nobody[i]) for i in range(min(_NODES, nodes))]
        if len(written) < _NODES:
            written.append(torch.zeros_like(public))
        return torch.stack(written), book.priced[0]
