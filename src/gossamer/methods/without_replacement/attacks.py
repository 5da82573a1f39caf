"""Attacks on writes of the shared model, for audits: mirrored records, writes read backwards, and a probe of Lemma 4.

Everyone sees the model before and after each write. A canary is one of two records that mirror each other along an
axis of their own, so the effect of its coin on a write is on that axis in every class, where no other record of the
node has any. The probe plays the turns between two writes with and without one record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from gossamer.accounting.releases import Event
from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.reader import Book, Records
from gossamer.mechanism.sampling import Lot, OnePass
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.lemma4 import record_bound
from gossamer.methods.without_replacement.token import Token, TokenExchange, Write, order
from gossamer.runtime.group import Alone
from gossamer.runtime.loop import run as run_loop

_LOT, _LARGE_LOT = 250, 1000
_LEANING = 0.15  # share of a leaning record along the axis that the others pull
_STEP = 40.0  # long enough for one write to make the slope of such a record 1

Bools = NDArray[np.bool_]


# --- writes read backwards ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A write of one node: `step` (C, d) = −Σ η ∇f over its lots since its last write + noise, where `known` (C,)."""

    t: int
    node: int
    before: Tensor  # (C, d) the public model as it was fetched
    step: Tensor
    known: Tensor


class WriteReader:
    """Inverts w_G ← Π((w_G + w_L)/2 − η ∇f(w_G) + noise), w_L ← w_G for every write that passes the token.

    A node's local model at its last write is known; the effect of its lots since is part of the step, as 2η/2 = η of
    every local gradient. The regulariser is public where it is taken at the public model. A class that Π pulled back
    to the ball is lost.
    """

    def __init__(self, exchange: TokenExchange, algorithm: WithoutReplacement, note: Callable[[Written], None]):
        self._exchange, self._algorithm, self._note = exchange, algorithm, note
        self._left: dict[int, Tensor] = {}  # node → its local models after its last writes

    def __call__(self, t: int, wants: Tensor, write: Write) -> Any:
        def watched(node: int, public: Tensor) -> Tensor:
            before = public.clone()
            after = write(node, public)
            self.see(t, node, before, after.clone(), wants[node])
            return after

        return self._exchange(t, wants, watched)

    def see(self, t: int, node: int, before: Tensor, after: Tensor, chosen: Tensor) -> None:
        a = self._algorithm
        local = self._left.get(node, torch.zeros_like(before))
        start = (before + local) / 2 if a.average else before
        step = after - start + a.lr(t) * a.regularisation * before
        inside = torch.ones_like(chosen)
        if a.radius is not None:
            inside = after.norm(dim=1) < a.radius * (1 - 1e-6)
        self._left[node] = torch.where(chosen[:, None], after, local)
        self._note(Written(t, node, before, step, chosen & inside))


# --- mirrored records ---------------------------------------------------------------------------------------


def leans(config: RunConfig, passes: int) -> bool:
    """Can a single write be prepared so that both of two mirrored records have their steepest slope in it?

    Only by another node, in a single pass (in the next the records themselves would pull the model back), and if a step
    may be arbitrarily long: Lemma 4 limits it for the sake of local steps, which are not taken here.
    """
    return config.algorithm.controller == "global" and passes == 1 and config.nodes > 1


def on_mirrored_records(config: RunConfig, plan: Any, classes: int) -> RunConfig:
    """The same releases on such records: as many passes, each of one lot, so that no other lot hides a record.

    A pass costs the same whatever its lots are, and the noise of a write is scaled to its step and lot: what is claimed
    and proven stays.
    """
    # A pass costs the same whatever its lots are only where the secrecy of lots is not priced.
    if not plan.sampling.disjoint or plan.sampling.independent:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} has no writes that this audit reads backwards; "
            'use "one-pass", or --canary release.'
        )
    if config.baseline != "none":
        raise UserError(f"baseline = {config.baseline!r} has no shared model to read; use --canary release.")
    _refuse_no_writes(config)
    passes = max(int(plan.sampling.visits(node.rate, plan.draws)) for node in plan.nodes)
    leaning = leans(config, passes)
    lot = _LARGE_LOT if leaning else _LOT
    algorithm = replace(config.algorithm, lr=_STEP) if leaning else config.algorithm
    changed = _on_made_up_data(config, lot + 1, classes, lot, OnePass(lot=lot))
    return changed.model_copy(update={"rounds": passes, "algorithm": algorithm})


def _refuse_no_writes(config: RunConfig) -> None:
    if config.algorithm.controller == "local":
        raise UserError('there is nothing to audit: with algorithm.controller = "local" no node writes.')


def _on_made_up_data(config: RunConfig, features: int, classes: int, records: int, sampling: Any) -> RunConfig:
    sizes = {"n": config.nodes, "features": features, "classes": classes, "test": 0, "records": records}
    data = datasets.parse({"kind": "synthetic-classification", **sizes})
    privacy = config.privacy.model_copy(update={"sampling": sampling})
    return config.model_copy(update={"data": data, "privacy": privacy})


class WriteAttack:
    """Trainings on mirrored records, and the evidence of their writes. `parts` are of `on_mirrored_records`.

    Record j is B (±√(1 − b²) e_j + b e_0), labelled 0: heads has the plus, tails the minus, or is not there. With b = 0
    the slopes of the two add up to 1 wherever the model is. Leaning, b > 0: the node that writes first holds −B e_0
    with the same label, which pulls the model so far that both are misclassified, and their slopes add up to 2.
    """

    def __init__(self, parts: Any):
        o, config = parts.plan, parts.plan.config
        assert isinstance(o.algorithm, WithoutReplacement)
        self._parts, self._algorithm, self._config, self._classes = parts, o.algorithm, config, o.classes or 1
        self.lot, self.bound = int(o.privacy.nodes[0].lot), record_bound(config)
        self.replace_one = config.privacy.adjacency == "replace-one"
        self.lean = _LEANING if leans(config, config.rounds) else 0.0
        self._across = math.sqrt(1 - self.lean**2)
        turns = order(config.seed, 0, config.nodes)
        # One node's coins, where the slopes would depend on the others'.
        alone = self.lean > 0 or not self.replace_one
        self.holders = ([turns[1]] if self.lean else turns[:1]) if alone else sorted(turns)
        self._pulls = turns[0] if self.lean else None
        self.effort = 10 if self.lean else 1  # times the usual number of coins, for events of a per mille
        # A coin moves its own axis only, by a size that depends on no other coin; but Π looks at all axes.
        self.independent = self._algorithm.radius is None

    @property
    def notes(self) -> tuple[str, ...]:
        """Also what the attack uses that the paper's statement leaves out: a reader of the verdict must know."""
        paper, most = self._config.mode == "paper", 1 / (2 * (1 + self._algorithm.regularisation))
        notes = {
            "A pass is one lot here: it costs the same, and hides no record among others.": True,
            f"algorithm.lr = {_STEP:g}: noise is scaled to the step, and a long one makes slopes steep.": self.lean,
            f"Lemma 4 is stated for steps up to 1/(2μ) = {most:.4g}, which its proof needs for local steps; nobody "
            "takes one here, and this step is longer.": paper and self.lean,
            f"The records have norm {self.bound:.4g}, as the configuration lets them, and the claim takes them for "
            "unit vectors; --set privacy.clip.radius=1.0 holds it to those.": paper and self.bound > 1,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def records(self, coins: Bools) -> Records:
        """coins (holders, lot)."""
        held: list[Tensor] = []
        for node in range(self._config.nodes):
            rows = torch.zeros(self.lot if node in self.holders or node == self._pulls else 0, self.lot + 1)
            if node in self.holders:
                own = torch.from_numpy(coins[self.holders.index(node)])
                axes, signs = torch.arange(self.lot), torch.where(own, 1.0, -1.0)
                rows[:, 0] = self.lean * self.bound
                rows[axes, axes + 1] = self._across * self.bound * signs
                rows = rows if self.replace_one else rows[own]
            elif node == self._pulls:
                rows[:, 0] = -self.bound
            held.append(rows)
        x = torch.cat(held)
        return Records(x, torch.zeros(len(x), dtype=torch.int64), [len(rows) for rows in held])

    def pulls_on_axes(self, public: Tensor) -> tuple[Tensor, Tensor]:
        """(heads, tails), (C, lot) each: −∇f of either record at the public model, along its own axis."""
        label = torch.full((len(public), 1), -1.0, dtype=torch.float64)
        label[0] = 1.0
        at, common = public[:, 1:].double(), self.lean * public[:, :1].double()
        size = self.bound * self._across

        def pull(sign: float) -> Tensor:
            margin = label * self.bound * (sign * self._across * at + common)
            return sign * size * label * torch.sigmoid(-margin)

        return pull(1.0), pull(-1.0) if self.replace_one else torch.zeros_like(at)

    @torch.no_grad()
    def train(self, coins: Bools, book: Book, stream: Stream) -> NDArray[np.float64]:
        """(holders, lot) scores of one training with these coins."""
        a, config = self._algorithm, self._config
        # The sampler remembers how it dealt a pass, and the last training had other records: take a new one.
        parts = replace(self._parts, records=self.records(coins), sampler=replace(self._parts.sampler))
        state = a.init(parts.x0)
        scores = torch.zeros(len(self.holders), self.lot, dtype=torch.float64)

        def note(written: Written) -> None:
            # A controller that looks chooses whether to write at all in the end; that choice is not used here. In the
            # first turn all of them choose blindly.
            blind = written.t == 0 or written.t + 1 < config.rounds or not a.looks
            if written.node in self.holders and blind:
                scores[self.holders.index(written.node)] += self._evidence(written)

        token = Token(state.public.view(self._classes, -1).clone())
        exchange = WriteReader(TokenExchange(Alone(config.nodes), config.seed, token), a, note)
        run_loop(a, state, parts.reader(book, stream), exchange, rounds=config.rounds)
        return scores.numpy()

    def _evidence(self, written: Written) -> Tensor:
        """(lot,) log-likelihood ratios: Gaussian noise of known size on a known step."""
        a = self._algorithm
        unit = a.lr(written.t) / self.lot
        share = a.loss_share if a.looks and a.observes == "released" else 0.0
        z = float(self._parts.noise.levels(written.t)[written.node])
        spread = max(z * math.sqrt(self._classes / (1 - share)), 1e-6) * unit * self.bound
        heads, tails = (unit * pull for pull in self.pulls_on_axes(written.before))
        seen = written.step[:, 1:].double()
        evidence = (heads - tails) * (seen - (heads + tails) / 2) / spread**2
        return torch.where(written.known[:, None], evidence, 0.0).sum(0)


# --- the probe: does a record move a write by more than Lemma 4 prices? ---------------------------------------

WRITE, OTHER = "its own node's write", "another node's sum"
_FEATURES = 4
_SMALL_LOT = 64  # a whole lot can turn against a record: the longer, the more an expansive step shows
_FAR = 20.0  # of a model whose slopes are 1 where it is wrong
_MOST_TURNS = 24  # of a pass that are played: its last ones
_NODES = 2  # of a scene: the record's, and one more
# Of the run's noise: lost in the rounding of a model, and the same with and without the record.
_NO_NOISE = 1e-30

Lots = Callable[[int], tuple[Tensor, Tensor]]  # so many records and their labels


def on_small_lots(config: RunConfig, classes: int) -> RunConfig:
    """The same releases on lots of a few short records: Lemma 4 holds for lots and records of any size."""
    _refuse_no_writes(config)
    sampling = config.privacy.sampling
    if getattr(sampling, "lot", None) is not None:
        sampling = replace(sampling, lot=_SMALL_LOT)  # type: ignore[type-var]
    return _on_made_up_data(config, _FEATURES, classes, _SMALL_LOT, sampling)


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
        return None  # a scene is within one

    def lot_numbers(self, step: int) -> list[int] | None:
        return None


class Prices:
    """A ledger in memory: the sensitivity that was priced, by node."""

    def __init__(self) -> None:
        self.priced: dict[int, float] = {}

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        for nodes, event in releases:
            self.priced |= dict.fromkeys(map(int, nodes), event.release.sensitivity)


@dataclass(frozen=True)
class WriteScene:
    """Some turns of a run, the last of which ends with a write; the lot of one `turn` of them has the record."""

    first: int
    turns: int
    turn: int
    lots: Lots
    lots_kind: str
    model: Tensor  # (C, d) the shared model, and the local ones, before these turns
    model_kind: str

    @property
    def description(self) -> str:
        turns = f"write of turn {self.first}"
        if self.turns > 1:
            last = self.first + self.turns - 1
            turns = f"turns {self.first} to {last}, record in number {self.turn + 1}"
        return f"{self.model_kind}, lots of {_SMALL_LOT} {self.lots_kind}, {turns}"


class WriteProbe:
    """Plays the turns of a scene with and without a record, and compares what is written.

    Lemma 4 holds if every local step between two writes is non-expansive: then the effect of a record in one step never
    grows. So scenes are chosen where it would: lots that balance around a model (the curvature of a logistic loss is
    largest where nothing pulls), one record off the balance, and all turns to the end of the pass to grow in. Writes
    and prices are those of the run's own reader, at the run's own step sizes; only its noise is left out.
    """

    improvable = False

    def __init__(self, o: Any, parts: Any, steps: Callable[[int], float] | None = None) -> None:
        """`o` is the plan of the run, `parts` are of `on_small_lots`; `steps` replace the run's step sizes."""
        levels = parts.noise.levels
        silent = replace(levels, factor=levels.factor * _NO_NOISE)
        self._config, self._plan = o.config, o.privacy
        self._parts = replace(parts, noise=replace(parts.noise, levels=silent))
        self._steps = steps or parts.plan.algorithm.lr
        self._bound, self._classes = record_bound(o.config), parts.plan.classes or 1
        self._width = parts.plan.stack.dim // self._classes

    def trials(
        self, odd_records: Callable[..., Any], seed: int
    ) -> Iterator[tuple[WriteScene, tuple[Tensor, Tensor, str]]]:
        """The records that grow most first, then odd ones."""
        chance = torch.Generator().manual_seed(seed)
        axis = torch.eye(self._width)[0]
        signs = torch.ones(self._classes, 1)
        signs[0] = -1
        models = [
            (torch.zeros(self._classes, self._width), "a model from zero"),
            (signs * axis * _FAR / self._bound, "a model that is wrong about it"),
        ]
        label, ways = torch.tensor(0), ((1, "along"), (-1, "against"))
        straight = [(sign * self._bound * axis, label, f"{how} the others' axis, labelled 0") for sign, how in ways]
        windows, lots = self._windows(), self._backgrounds(self._bound * axis, chance)
        for window, background, record, model in itertools.product(windows, lots, straight, models):
            yield WriteScene(*window, *background, *model), record
        known = self._bound * normalize(torch.randn(8, self._width, generator=chance))
        for n, record in enumerate(odd_records(known, label.expand(8), self._classes, seed)):
            scene = WriteScene(*windows[n % len(windows)], *lots[n % len(lots)], *models[n % 2])
            yield scene, record

    def _windows(self) -> list[tuple[int, int, int]]:
        """(first, turns, turn) in the first pass, the last, and the one with the longest step.

        The record comes early, late and alone.
        """
        rounds, turns = self._config.rounds, 1
        if self._plan.sampling.disjoint and self._config.algorithm.controller != "global":
            turns = min(rounds, max(1, math.ceil(1 / max(node.rate for node in self._plan.nodes))))
        longest = max(range(rounds), key=self._steps)
        ends = sorted({min(rounds, (t // turns + 1) * turns) for t in (0, longest, rounds - 1)}, reverse=True)
        played = min(turns, _MOST_TURNS)
        turns_of_record = sorted({0, played // 2, played - 1})
        windows = [(end - played, played, turn) for end in ends for turn in turns_of_record]
        return windows + [(end - 1, 1, 0) for end in ends if played > 1]

    def _backgrounds(self, axis: Tensor, chance: torch.Generator) -> list[tuple[Lots, str]]:
        def random(count: int) -> tuple[Tensor, Tensor]:
            generator = torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=chance)))
            x = normalize(torch.randn(count, self._width, generator=generator))
            return self._bound * x, torch.randint(self._classes, (count,), generator=generator)

        def repeated(rows: list[Tensor], labels: list[int]) -> Lots:
            """These two records in turn."""
            both = torch.stack(rows), torch.tensor(labels)
            return lambda count: (both[0].repeat(count, 1)[:count], both[1].repeat(count)[:count])

        return [
            (repeated([axis, -axis], [0, 0]), "balanced records"),  # all classes balance
            # Nothing pulls at zero.
            (repeated([axis, axis], [0, self._classes - 1]), "records of two labels"),
            (repeated([0 * axis, 0 * axis], [0, 0]), "blank records"),
            (random, "random records"),
        ]

    def measure(self, scene: WriteScene, record: Any) -> list[tuple[str, float, float, float]]:
        """(figure, distance, price, rounding), all in units of the price."""
        x, y = scene.lots(scene.turns * _SMALL_LOT)
        x, y = torch.cat([x, record.x[None].to(x)]), torch.cat([y, record.y[None].to(y)])
        (with_it, priced), (without, _) = (self._write(scene, x, y, present) for present in (True, False))
        apart = (with_it.flatten(1).double() - without.flatten(1).double()).norm(dim=1)
        # Without noise a write is a float32 model: of length 20 it is a grid of 2e-6, and a step may be a thousandth.
        lengths = with_it.flatten(1).norm(dim=1) + without.flatten(1).norm(dim=1)
        rounding = 2.0**-24 * lengths.double() / priced
        # Under replace-one the price is of two such records: each is tested against its half.
        return [
            (place, float(apart[i]) / priced, allowed, float(rounding[i]))
            for i, (place, allowed) in enumerate(((WRITE, 1.0), (OTHER, 0.0)))
        ]

    @torch.no_grad()
    def _write(self, scene: WriteScene, x: Tensor, y: Tensor, present: bool) -> tuple[Tensor, float]:
        """(nodes, C, d) what the nodes would write at the end of the scene, and the price of the first one's write."""
        size, nodes = len(x), len(self._parts.nodes)
        parts, book, public = self._parts, Prices(), scene.model
        dealt = DealtLots(
            rates=parts.sampler.rates,
            turns=scene.turns,
            lot=_SMALL_LOT,
            turn=(scene.turn + scene.first) % scene.turns,
            present=present,
            disjoint=parts.sampler.disjoint,
        )
        held = Records(x.repeat(nodes, 1), y.repeat(nodes), [size] * nodes)
        reader = replace(parts, records=held, sampler=dealt).reader(book, Stream.seeded(0))
        nobody = torch.zeros(nodes, self._classes, dtype=torch.bool)
        reader.local = public.repeat(nodes, 1, 1).double()
        last = scene.first + scene.turns - 1
        for t in range(scene.first, last):
            reader.open(t, self._steps(t))
            reader.step_locally(nobody)
        reader.open(last, self._steps(last))
        reader.prepare(~nobody)
        written = [reader.write(i, public, ~nobody[i]) for i in range(min(_NODES, nodes))]
        if len(written) < _NODES:
            written.append(torch.zeros_like(public))
        return torch.stack(written), book.priced[0]
