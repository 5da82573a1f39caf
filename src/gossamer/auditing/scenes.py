"""Lots with and without one record, as training would hand them to the run's vector.

A scene fixes everything but that record: how many nodes share the batch, their points and lots, the clip of a draw. The
record joins a lot in one of three ways, for a lot may have room for it or not:

    in place   its place was padding before: the same shapes with and without it
    grown      the lot is one record longer with it, and the other nodes are padded
    swapped    it takes the place of an ordinary record: no padding at all, and twice the bound may move
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gossamer.auditing.odd_records import OddRecord
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import ClipStep
from gossamer.mechanism.noise.base import RANDOM_LAYERS
from gossamer.mechanism.reader import Vector
from gossamer.training.assemble import Parts

How = Literal["in place", "grown", "swapped"]
_MOST_FLOATS = 1 << 24  # of all points of a scene: of large models not every node is in it

# nodes in the batch (0: all), records in a lot, which records, distance of the points from the start, how it joins
_PLAN: tuple[tuple[int, int, str, float, How], ...] = (
    (0, 2, "ordinary", 0.05, "in place"),
    (1, 3, "ordinary", 0.05, "swapped"),
    (1, 0, "ordinary", 0.05, "grown"),
    (0, 1, "ordinary", 0.0, "in place"),
    (0, 3, "tiny", 0.05, "grown"),
    (1, 2, "ordinary", 1.0, "grown"),
    (0, 4, "normal", 1.0, "swapped"),
    (1, 4, "alike", 0.05, "in place"),
    (2, 2, "tiny", 0.05, "swapped"),
    (0, 8, "ordinary", 0.05, "grown"),
    (1, 7, "ordinary", 0.0, "swapped"),
    (0, 0, "ordinary", 1.0, "in place"),
)


@dataclass(frozen=True)
class Batch:
    x: Tensor  # (h, B, …)
    y: Tensor  # (h, B)
    mask: Tensor  # (h, B)


@dataclass(frozen=True)
class Scene:
    batch: Batch  # the lots without the record
    next: Batch  # the lots of the release after
    start: Tensor  # (h, d) where training starts
    spread: float  # of the points around it
    clip: ClipStep
    draw: str  # which clip that is
    victim: int  # whose record it is
    place: int  # where it comes in
    how: How
    records: str  # of which records the lots are
    number: int
    seed: int  # of the module's own randomness
    nudge: float = 0.0  # how far each coordinate of the points is moved, of its own size

    @property
    def points(self) -> Tensor:
        """(h, d); made when asked for, since those of large models are large."""
        chance = torch.Generator().manual_seed(self.number)
        points = self.start + self.spread * torch.randn(self.start.shape, generator=chance).to(self.start)
        if self.nudge:
            signs = 2.0 * torch.randint(2, points.shape, generator=chance).to(points) - 1
            points = (points.double() * (1 + 2 * self.nudge * signs.double())).to(points)
        return points

    @property
    def priced(self) -> float:
        """How many bounds the victim's sum may move: swapping takes one record out and puts one in.

        A lot clipped as a whole may come out on the opposite side of its ball.
        """
        return 2.0 if self.how == "swapped" or self.clip.of_lot else 1.0

    @property
    def description(self) -> str:
        size, hosted = int(self.batch.mask[self.victim].sum()), len(self.start)
        return f"{self.how}, lot of {size} {self.records}, {hosted} node{'s' * (hosted > 1)}, {self.draw}"

    def with_record(self, record: OddRecord) -> Batch:
        room = self.with_room()
        x, y, mask = room.x.clone(), room.y.clone(), room.mask.clone()
        x[self.victim, self.place], y[self.victim, self.place] = record.x.to(x), record.y.to(y)
        mask[self.victim, self.place] = True
        return Batch(x, y, mask)

    def with_room(self) -> Batch:
        """The lots without the record, in the shapes they have with it."""
        if self.how != "grown":
            return self.batch
        x, y, mask = self.batch.x, self.batch.y, self.batch.mask
        longer = (
            torch.cat([part, part.new_zeros(len(part), 1, *part.shape[2:])], 1) for part in (x, y, mask)
        )
        return Batch(*longer)

    def sums(self, vector: Vector, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vector's sums (h, d) in double precision, and the norms, as the reader asks for them.

        The module's own randomness is the same every time: it does not depend on records, so a difference that it
        makes is no leak, and every record meets the same draw of it.
        """
        points = self.points
        x, y, mask = batch.x.clone(), batch.y.clone(), batch.mask.clone()
        if hasattr(vector, "draw_from"):
            vector.draw_from(Stream.seeded(self.seed), RANDOM_LAYERS, np.arange(len(points)), 0)
        with _randomness(self.seed):
            sums, norms = self.clip.sums(vector, points, x, y, mask)
        return sums.double(), norms

    def in_bounds(self, moved: Tensor) -> Tensor:
        """(h,) distances in units of what the noise is scaled to."""
        return moved / self.clip.reference[: len(self.start)].double()

    def rounded(self, unit: float) -> Scene:
        """The same at points whose every coordinate is off by one rounding, up or down by chance."""
        return replace(self, nudge=unit)


def scenes(parts: Parts, seed: int) -> list[Scene]:
    """Lots of the run's own records; clips from all of its schedule; only swaps where a record is replaced."""
    chance = torch.Generator().manual_seed(seed)
    hosted = max(1, min(len(parts.nodes), _MOST_FLOATS // max(1, parts.plan.stack.dim)))
    swaps = parts.plan.privacy.adjacency == "replace-one"
    clips = _clips(parts)
    found = []
    for number, (nodes, size, records, spread, how) in enumerate(_PLAN):
        draw, clip = clips[number % len(clips)]
        count = min(nodes or hosted, hosted)
        found.append(
            _scene(
                parts, chance, count, size, records, spread, "swapped" if swaps else how, clip, draw, number
            )
        )
    return found


def _scene(
    parts: Parts,
    chance: torch.Generator,
    hosted: int,
    size: int,
    records: str,
    spread: float,
    how: How,
    clip: ClipStep,
    draw: str,
    number: int,
) -> Scene:
    batch = _lots(parts, hosted, size if how == "grown" else size + 1, records, chance)
    victim = number % hosted
    place = size if how == "grown" else int(torch.randint(size + 1, (), generator=chance))
    if how == "in place":
        batch.mask[victim, place] = False
    following = _lots(parts, hosted, 2, "ordinary", chance)
    start = parts.x0[:hosted]
    return Scene(
        batch, following, start, spread, clip, draw, victim, place, how, records, number=number, seed=number
    )


def _lots(parts: Parts, hosted: int, size: int, records: str, chance: torch.Generator) -> Batch:
    held = torch.tensor(parts.records.sizes)
    held = (
        held if len(held) == len(parts.nodes) else held.new_tensor([len(parts.records.x)] * len(parts.nodes))
    )
    rows = (torch.rand(len(held), size, generator=chance) * held[:, None]).long()
    mask = (held > 0)[:, None].expand_as(rows).clone()
    x, y = (part[:hosted].clone() for part in parts.records.rows(rows))
    if size and records == "alike":
        x, y = x[:, :1].expand_as(x).clone(), y[:, :1].expand_as(y).clone()
    elif x.is_floating_point() and records == "tiny":
        x = x / x.abs().max().clamp_min(1e-30) / 2
    elif x.is_floating_point() and records == "normal":
        x = torch.randn(x.shape, generator=chance).to(x)
    return Batch(x, y, mask[:hosted])


def _clips(parts: Parts) -> list[tuple[str, ClipStep]]:
    """Of the first and last draw, the loosest and tightest between them, and wherever a clip that follows may get."""
    clip, nodes = parts.clip(), len(parts.nodes)
    last = max(0, parts.plan.privacy.draws - 1)
    some = sorted({0, last // 2, last, *np.linspace(0, last, num=min(last + 1, 1000), dtype=int).tolist()})
    bounds = {k: float(clip.at(k, nodes).reference[0]) for k in some}
    chosen = {0: "first", last: "last", min(some, key=lambda k: bounds[k]): "tightest"}
    chosen.setdefault(max(some, key=lambda k: bounds[k]), "loosest")
    found = [(f"clip of draw {k}", clip.at(k, nodes)) for k in sorted(chosen)]
    if not clip.scale_is_public:  # it follows records, and these may pull it far
        for factor in (1e-12, 1e12):
            followed = parts.clip()
            followed.restore({key: value * factor for key, value in followed.state().items()})
            found.append((f"clip times {factor:.0e}", followed.at(last, nodes)))
    return found


@contextmanager
def _randomness(seed: int) -> Iterator[None]:
    """All of Python's, numpy's and torch's global randomness from this seed, and put back afterwards."""
    plain, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy_state)
