"""Canaries: the records that an audit includes or leaves out, as rows that `PrivateGradient` reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.config.schema import PersonUnit, RunConfig
from gossamer.data.inputs import inputs_of
from gossamer.data.load import datasets
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import COINS
from gossamer.mechanism.reader import Records
from gossamer.methods import method_of
from gossamer.methods.km.attacks import AnswerReader
from gossamer.models.losses import losses
from gossamer.models.networks import models
from gossamer.training.assemble import Parts
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
        what = f"privacy.sampling.kind = {config.privacy.sampling.kind!r} needs the number of records to stay"
        remedy = "use --set privacy.adjacency=replace-one"
        raise UserError(f"{what}, so an audit can only replace one; {remedy}.")
    return replace_one


# --- Dirac canaries -----------------------------------------------------------------------------------------


def on_dirac_records(config: RunConfig, plan: PrivacyPlan, places: int | None = None) -> RunConfig:
    """The same mechanism, graph and algorithm, on records whose gradients are orthogonal axes.

    What is proven or claimed holds for all data, so it must hold for these. Record counts stay as declared;
    `places` is the length of the table, by default one for every record. Operators of dp-dkm get the axes as rows of a
    linear model, whose resolvents they can take; where the noise is on the iterates nothing clips, and Huber's loss
    keeps every residual at the bound that the paper assumes.
    """
    sampling = f"privacy.sampling.kind = {config.privacy.sampling.kind!r}"
    counts, dense = [node.records for node in plan.nodes], method_of(config).takes_resolvents
    most, least = (MOST_ROWS, 1) if dense else (MOST_PER_NODE, 2)
    per_holder = places or max(least, min(most, *counts))
    if config.baseline == "central":
        raise UserError("baseline = 'central' pools records, Dirac canaries do not; use --canary blank.")
    if config.privacy.unit == "node":
        raise UserError("privacy.unit = 'node': one unit a node, Dirac canaries many; use --canary release.")
    if plan.sampling.needs_true_sizes:
        per_holder = min(counts)
        most = math.isqrt(_MOST_NUMBERS // config.nodes) if dense else per_holder
        if places:
            what = f"{sampling} cannot draw from empty nodes, as --canary lengths has"
            raise UserError(f"{what}; use --canary dirac.")
        if per_holder < max(counts):
            what = f"{sampling} is audited by --canary dirac on nodes with the same number of records"
            raise UserError(f"{what}; here it is {per_holder} to {max(counts)}, so set data.train_rows.")
        if per_holder > most:
            what = f"{sampling} is audited with a row for every record, {per_holder:,} a node are too many"
            raise UserError(f"{what}; use at most {most:,}, or --canary release.")
    bound = farthest = 1.0
    if plan.on == "iterate":  # ‖T(x) − x‖ = γ · `assumed`, the paper's B; a reflection moves x twice as far
        assumed, km = config.privacy.clip.unit, method_of(config).bare()
        farthest = max(node.factor for node in plan.nodes) * assumed * plan.draws
        bound = float(assumed * km.gamma / abs(AnswerReader(km).gain))
    size = _OUT_OF_REACH * max(1.0, config.privacy.clip.schedule(plan.draws)(0), farthest)
    data = {
        "kind": "dirac",
        "records": counts,
        "holders": config.nodes,
        "per_holder": per_holder,
        "size": size,
    }
    if config.privacy.unit != "record":
        data["persons"] = config.nodes * per_holder
    # The coefficients of the recipe's own data mean nothing here.
    evaluation = config.evaluation.model_copy(update={"metric": "hold-out"})
    changes: dict[str, Any] = {"evaluation": evaluation, "lora": None}
    if dense:
        data["dense"] = True
        loss = {"kind": "huber", "delta": bound} if plan.on == "iterate" else {"kind": "least-squares"}
        changes |= {"loss": losses.parse(loss), "model": models.parse({"kind": "linear"})}
    else:
        changes["model"] = models.parse({"kind": "lookup", "rows": per_holder})
    return config.model_copy(update={**changes, "data": datasets.parse(data)})


def gradient_size(config: RunConfig) -> float:
    """Return the lengths of these records' gradients before any clip."""
    if config.loss is not None and config.loss.kind == "huber":
        return float(config.loss.delta)
    assert isinstance(config.data, Dirac)
    return config.data.size


@dataclass(frozen=True)
class CanaryUnit:
    """A canary of `records` equal records, and whether the run clips them together as a person's."""

    records: int
    together: bool = False
    mean: bool = False

    @classmethod
    def of(cls, config: RunConfig, records: int) -> CanaryUnit:
        unit = config.privacy.unit
        if not isinstance(unit, PersonUnit):
            return cls(records)
        if records > unit.max_records:
            limit = f"privacy.unit.max_records = {unit.max_records}, the most that a run uses of a person"
            raise UserError(f"--canary-records {records} is more than {limit}; use at most that many.")
        return cls(records, together=True, mean=unit.combine == "mean")

    def norm(self, size: float) -> float:
        """The norm of the vector that is clipped, if that of one record's gradient is `size`."""
        return size * self.records if self.together and not self.mean else size

    def notes(self, config: RunConfig) -> tuple[str, ...]:
        if self.records == 1:
            return ()
        note = f"A canary is a person of {self.records} records, in or out as a whole."
        if not self.together:
            protected = config.privacy.protects.words()
            note += f" The run protects {protected}: the bounds are about such a person, to whom nothing is promised."
        return (note,)


def dirac_records(
    coins: Bools, size: float, unit: CanaryUnit, *, replace_one: bool, dense: bool, holders: Bools | None
) -> Records:
    """Row i holds the places with heads; with `replace_one` all places, those with tails with the opposite target.

    Rows outside of `holders` hold no record. All records of one canary are at one place.
    """
    present = np.ones_like(coins) if replace_one else coins
    if holders is not None:
        present = present & holders[:, None]
    x = torch.from_numpy(np.nonzero(present)[1]).repeat_interleave(unit.records)
    y = torch.from_numpy(np.where(coins, -size, size).astype(np.float32)[present])
    counts = present.sum(1).tolist()
    sizes, targets = [count * unit.records for count in counts], y.repeat_interleave(unit.records)
    persons = [np.full(count, unit.records) for count in counts] if unit.together else None
    places = at_places(x, coins.shape[1], dense=dense)
    return Records(places, targets, sizes, persons=persons, mean=unit.mean)


def at_places(x: Tensor, places: int, *, dense: bool) -> Tensor:
    """Places as a table reads them, or as rows of a linear model."""
    return torch.eye(places)[x] if dense else x


# --- records of a real data set -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Canary:
    x: Tensor
    y: Tensor
    description: str


def _mislabelled(parts: Parts) -> Canary:
    """The first record of the hold-out, under the next label."""
    if not len(parts.dataset.x_test):
        raise UserError("--canary mislabelled needs a hold-out to take a record from; use --canary blank.")
    label = (int(parts.dataset.y_test[0]) + 1) % (parts.dataset.classes or 2)
    record = torch.from_numpy(parts.dataset.x_test[0])
    return Canary(record, torch.tensor(label), f"a hold-out record mislabelled {label}")


def _constant(value: float, description: str, parts: Parts) -> Canary:
    """A record of one value as the source has them, after the steps that every record goes through."""
    shape, inputs = parts.dataset.x_train.shape[1:], inputs_of(parts.plan.config.data, parts.dataset)
    if inputs.pca is not None and inputs.pca_from == "train":  # its components are not kept
        inputs = replace(inputs, shape=shape, transform=[], pca=None, scale="none", bias=False)
    rows = np.full((1, *inputs.shape), value, parts.dataset.x_train.dtype)
    record = torch.from_numpy(np.array(inputs.prepared(rows, parts.plan.data_dir)[0]))
    return Canary(record, torch.tensor(0), f"{description} labelled 0")


CANARIES: dict[str, Callable[[Parts], Canary]] = {
    "blank": partial(_constant, 0.0, "a blank record"),
    "mislabelled": _mislabelled,
    "extreme": partial(_constant, 1.0, "a record of ones"),  # a long gradient that no other record resembles
}


def home_of(canary: Canary, labels: Tensor, sizes: list[int]) -> int:
    """The node that has most records of the canary's label: where it is least conspicuous."""
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return int(torch.bincount(owners[labels == canary.y], minlength=len(sizes)).argmax())


def with_and_without(
    base: Records, canary: Canary, victim: int, present: Bools, *, replace_one: bool, records: int = 1
) -> Records:
    """Rows node-major over runs: the victim's records with the canary where `present`, as they were elsewhere.

    Under replace-one the canary replaces the victim's last record, or last person. It has so many `records`.
    """
    runs, sizes = len(present), base.sizes
    starts = [0, *np.cumsum(sizes).tolist()]
    begin, end = starts[victim], starts[victim + 1]
    if replace_one:
        end -= min(records, end - begin) if base.persons is None else int(base.persons[victim][-1])
    x = torch.cat([base.x, base.x[begin:end], canary.x.to(base.x).expand(records, *canary.x.shape)])
    y = torch.cat([base.y, base.y[begin:end], canary.y.to(base.y).expand(records)])
    row_starts = np.repeat(starts[:-1], runs).reshape(-1, runs)
    row_sizes = np.repeat(sizes, runs).reshape(-1, runs)
    row_starts[victim, present], row_sizes[victim, present] = len(base.x), end - begin + records
    persons = None
    if base.persons is not None:
        own = base.persons[victim]
        swapped = np.append(own[: len(own) - replace_one], records)
        persons = [own for own in base.persons for _ in range(runs)]
        persons[victim * runs : (victim + 1) * runs] = [swapped if one else own for one in present]
    sizes, starts = row_sizes.ravel().tolist(), row_starts.ravel().tolist()
    return Records(x, y, sizes, starts, persons=persons, mean=base.mean)
