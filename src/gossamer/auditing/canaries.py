"""Canaries: the records that an audit includes or leaves out, as rows that `PrivateGradient` reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.auditing.recovery import answer_gain
from gossamer.config.schema import PersonUnit, RunConfig
from gossamer.data.dataset import Dataset
from gossamer.data.load import datasets
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import COINS
from gossamer.mechanism.reader import Records
from gossamer.methods import method_of
from gossamer.models.losses import losses
from gossamer.models.networks import models
from gossamer.options.registry import Registry
from gossamer.training.privacy import PrivacyPlan

MOST_PER_NODE = 2500
MOST_ROWS = 256  # of records that are rows of numbers: a lot is a square of them
_MOST_NUMBERS = 1 << 26  # of all of these
_OUT_OF_REACH = 1e4  # gradients this many times the clip stay clipped wherever training goes

Bools = NDArray[np.bool_]


def flip(stream: Stream, rows: int, count: int) -> Bools:
    """Fair coins (rows, count), secret like the noise."""
    words = stream.uniform_bits_rows(COINS, list(range(rows)), 0, count)
    return (words & np.uint64(1)).astype(bool)


def refuse_unequal_sizes(config: RunConfig) -> bool:
    """Is a record replaced? Drawing a fixed number of records is not defined for a data set of one record less."""
    replace_one = config.privacy.adjacency == "replace-one"
    if config.privacy.sampling.needs_true_sizes and not replace_one:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} needs the number of records to stay, so an "
            "audit can only replace one: use --set privacy.adjacency=replace-one."
        )
    return replace_one


# --- Dirac canaries -----------------------------------------------------------------------------------------


def on_dirac_records(config: RunConfig, plan: PrivacyPlan, places: int | None = None) -> RunConfig:
    """The same mechanism, graph and algorithm, on records whose gradients are orthogonal axes.

    What is proven or claimed holds for all data, so it must hold for these. Record counts stay as declared;
    `places` is the length of the table, by default one for every record. Operators of dp-dkm get the axes as rows of a
    linear model, whose resolvents they can take; where the noise is on the iterates nothing clips, and Huber's loss
    keeps every residual at the bound that the paper assumes.
    """
    if config.baseline == "central":
        raise UserError(
            "baseline = 'central' pools the nodes' records, which Dirac canaries do not share axes for; "
            "audit it with --canary blank."
        )
    held = sorted({node.records for node in plan.nodes})
    dense = method_of(config).takes_resolvents
    most, least = (MOST_ROWS, 1) if dense else (MOST_PER_NODE, 2)
    per_holder = places or max(least, min(most, held[0]))
    if plan.sampling.needs_true_sizes:
        if places:
            raise UserError(
                "--canary lengths leaves most nodes without records, of which privacy.sampling.kind = "
                f"{config.privacy.sampling.kind!r} cannot draw any; use --canary dirac."
            )
        if len(held) > 1:
            raise UserError(
                f"privacy.sampling.kind = {config.privacy.sampling.kind!r} is audited by --canary dirac on nodes that "
                f"all hold the same number of records; here it is {held[0]} to {held[-1]}, so set data.train_rows."
            )
        per_holder = held[0]
        if dense and config.nodes * per_holder**2 > _MOST_NUMBERS:
            most = math.isqrt(_MOST_NUMBERS // config.nodes)
            raise UserError(
                f"privacy.sampling.kind = {config.privacy.sampling.kind!r} is audited with a row for every record, and "
                f"{held[0]:,} a node are too many; use at most {most:,}, or --canary release."
            )
    bound = farthest = 1.0
    if plan.on == "iterate":
        assumed = config.privacy.clip.unit
        farthest = max(node.factor for node in plan.nodes) * assumed * plan.draws
        bound = _largest_answer(config, assumed)
    size = _OUT_OF_REACH * max(1.0, config.privacy.clip.schedule(plan.draws)(0), farthest)
    if config.privacy.unit == "node":
        raise UserError(
            "privacy.unit = 'node' has one unit at a node, and Dirac canaries are many; use --canary release."
        )
    data = {
        "kind": "dirac",
        "records": [node.records for node in plan.nodes],
        "holders": config.nodes,
        "per_holder": per_holder,
        "size": size,
        **({} if config.privacy.unit == "record" else {"persons": config.nodes * per_holder}),
    }
    changes: dict[str, Any] = {"model": {"kind": "lookup", "rows": per_holder}, "data": data}
    if dense:
        loss = {"kind": "huber", "delta": bound} if plan.on == "iterate" else {"kind": "least-squares"}
        changes = {"model": {"kind": "linear"}, "data": {**data, "dense": True}, "loss": loss}
    kinds: dict[str, Registry[Any]] = {"data": datasets, "model": models, "loss": losses}
    parts = {key: kinds[key].parse(value) for key, value in changes.items()}
    # The coefficients of the recipe's own data mean nothing here.
    seen = config.evaluation.model_copy(update={"metric": "hold-out"})
    return config.model_copy(update={**parts, "evaluation": seen})


def _largest_answer(config: RunConfig, assumed: float) -> float:
    """About one record: with it ‖T(x) − x‖ is γ · `assumed`, the paper's B. A reflection moves x twice as far."""
    km = method_of(config).bare()
    return float(assumed * km.gamma / abs(answer_gain(km)))


def gradient_size(config: RunConfig) -> float:
    """How long the gradients of these records are before any clip."""
    if config.loss is not None and config.loss.kind == "huber":
        return float(config.loss.delta)
    assert isinstance(config.data, Dirac)
    return config.data.size


@dataclass(frozen=True)
class CanaryUnit:
    """A canary of `records` equal records, and whether the run clips them together as a person's."""

    records: int = 1
    together: bool = False
    mean: bool = False

    @classmethod
    def of(cls, config: RunConfig, records: int) -> CanaryUnit:
        unit = config.privacy.unit
        if not isinstance(unit, PersonUnit):
            return cls(records)
        if records > unit.max_records:
            raise UserError(
                f"--canary-records {records} is more than privacy.unit.max_records = {unit.max_records}, the most that "
                "a run uses of a person; use at most that many."
            )
        return cls(records, together=True, mean=unit.combine == "mean")

    def norm(self, size: float) -> float:
        """The norm of the vector that is clipped, if that of one record's gradient is `size`."""
        return size * self.records if self.together and not self.mean else size

    def notes(self, config: RunConfig) -> tuple[str, ...]:
        if self.records == 1:
            return ()
        note = f"A canary is a person of {self.records} records, in or out as a whole."
        if self.together:
            return (note,)
        return (
            f"{note} The run protects {config.privacy.protects.words()}: the bounds are about such a person, to whom "
            "nothing is promised.",
        )


def dirac_records(
    coins: Bools,
    size: float,
    *,
    replace_one: bool,
    dense: bool = False,
    holders: Bools | None = None,
    unit: CanaryUnit | None = None,
) -> Records:
    """Row i holds the places with heads; with `replace_one` all places, those with tails with the opposite target.

    Rows outside of `holders` hold no record. All records of one canary are at one place.
    """
    unit = unit or CanaryUnit()
    _rows, places = coins.shape
    held = np.ones_like(coins) if replace_one else coins
    if holders is not None:
        held = held & holders[:, None]
    x = torch.from_numpy(np.nonzero(held)[1])
    y = torch.from_numpy(np.where(coins, -size, size).astype(np.float32)[held])
    x, y = x.repeat_interleave(unit.records), y.repeat_interleave(unit.records)
    sizes = (held.sum(1) * unit.records).tolist()
    persons = [np.full(count, unit.records) for count in held.sum(1).tolist()] if unit.together else None
    return Records(at_places(x, places, dense=dense), y, sizes, persons=persons, mean=unit.mean)


def at_places(x: Tensor, places: int, *, dense: bool) -> Tensor:
    """Places as a table reads them, or as rows of a linear model."""
    return torch.eye(places)[x] if dense else x


# --- records of a real data set -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Canary:
    x: Tensor
    y: Tensor
    description: str


def _blank(data: Dataset) -> Canary:
    return Canary(torch.zeros(data.x_train.shape[1:]), torch.tensor(0), "a blank record labelled 0")


def _mislabelled(data: Dataset) -> Canary:
    """The first record of the hold-out, under the next label."""
    if not len(data.x_test):
        raise UserError("--canary mislabelled needs a hold-out to take a record from; use --canary blank.")
    label = (int(data.y_test[0]) + 1) % (data.classes or 2)
    return Canary(
        torch.from_numpy(data.x_test[0]), torch.tensor(label), f"a hold-out record mislabelled {label}"
    )


def _extreme(data: Dataset) -> Canary:
    """All features at their largest: a long gradient that no other record resembles."""
    return Canary(torch.ones(data.x_train.shape[1:]), torch.tensor(0), "a record of ones labelled 0")


CANARIES: dict[str, Callable[[Dataset], Canary]] = {
    "blank": _blank,
    "mislabelled": _mislabelled,
    "extreme": _extreme,
}


def home_of(canary: Canary, labels: Tensor, sizes: list[int]) -> int:
    """The node that has most records of the canary's label: where nobody would wonder about it."""
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return int(torch.bincount(owners[labels == canary.y], minlength=len(sizes)).argmax())


def with_and_without(
    base: Records, canary: Canary, victim: int, present: Bools, *, replace_one: bool, records: int = 1
) -> Records:
    """Rows node-major over runs: the victim's records with the canary where `present`, as they were elsewhere.

    Under replace-one the canary stands in for the victim's last record, or last person. It has so many `records`.
    """
    runs, sizes = len(present), base.sizes
    starts = [0, *np.cumsum(sizes).tolist()]
    begin, end = starts[victim], starts[victim + 1]
    out = 0
    if replace_one:
        out = min(records, end - begin) if base.persons is None else int(base.persons[victim][-1])
    kept = end - out
    canary_x = canary.x[None].to(base.x).expand(records, *canary.x.shape)
    x = torch.cat([base.x, base.x[begin:kept], canary_x])
    y = torch.cat([base.y, base.y[begin:kept], canary.y[None].to(base.y).expand(records)])
    row_starts, row_sizes, row_persons = [], [], []
    for i, size in enumerate(sizes):
        for r in range(runs):
            swapped = i == victim and bool(present[r])
            row_starts.append(len(base.x) if swapped else starts[i])
            row_sizes.append(kept - begin + records if swapped else size)
            if base.persons is not None:
                own = base.persons[i]
                others = own[: len(own) - replace_one] if swapped else own
                row_persons.append(np.append(others, records) if swapped else own)
    persons = None if base.persons is None else row_persons
    return Records(x, y, row_sizes, row_starts, persons=persons, mean=base.mean)
