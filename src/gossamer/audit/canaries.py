"""The records an audit puts in or leaves out. They come in as records do: as rows that `PrivateGradient` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.config import Data, Open, RunConfig
from gossamer.data.dataset import Dataset
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.privacy_plan import PrivacyPlan, clip_schedule
from gossamer.private.gradient import Records

COINS = 4  # purpose field of the stream: coins never share a counter with noise or sampling
MOST_PER_NODE = 2500
_OUT_OF_REACH = 1e4  # gradients this many times the clip stay clipped wherever training goes

Bools = NDArray[np.bool_]


def flip(stream: Stream, rows: int, count: int) -> Bools:
    """Fair coins (rows, count), secret like the noise."""
    words = stream.uniform_bits_rows(COINS, list(range(rows)), 0, count)
    return (words & np.uint64(1)).astype(bool)


# --- Dirac canaries -----------------------------------------------------------------------------------------


def on_dirac_records(config: RunConfig, plan: PrivacyPlan, places: int | None = None) -> RunConfig:
    """The same mechanism, graph and algorithm, on records whose gradients are orthogonal axes.

    What is proven or claimed holds for all data, so it must hold for these. Record counts stay as declared;
    `places` is the length of the table, by default one for every record.
    """
    if config.baseline == "central":
        raise UserError(
            "baseline = 'central' pools the nodes' records, which Dirac canaries do not share axes for; "
            "audit it with --canary blank."
        )
    held = sorted({node.records for node in plan.nodes})
    per_holder = places or max(2, min(MOST_PER_NODE, held[0]))
    if plan.sampling == "fixed-size":
        if len(held) > 1 or places:
            raise UserError(
                f"privacy.sampling.kind = {config.privacy.sampling.kind!r} is audited by --canary dirac on nodes that "
                f"all hold the same number of records; here it is {held[0]} to {held[-1]}, so set data.train_rows."
            )
        per_holder = held[0]
    size = _OUT_OF_REACH * max(1.0, clip_schedule(config, plan.draws)(0))
    data = {
        "kind": "dirac",
        "records": [node.records for node in plan.nodes],
        "holders": config.nodes,
        "per_holder": per_holder,
        "size": size,
    }
    model = {"kind": "lookup", "rows": per_holder}
    return config.model_copy(update={"data": Data.model_validate(data), "model": Open.model_validate(model)})


def dirac_records(coins: Bools, size: float, *, replace_one: bool) -> Records:
    """Row i holds the places whose coin is heads; with `replace_one` all of them, tails with the opposite target."""
    rows, places = coins.shape
    if replace_one:
        x = torch.arange(places).repeat(rows)
        y = torch.from_numpy(np.where(coins, -size, size).astype(np.float32)).flatten()
        return Records(x, y, [places] * rows)
    x = torch.from_numpy(np.nonzero(coins)[1])
    return Records(x, torch.full((len(x),), -size), coins.sum(1).tolist())


# --- records of a real data set -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Canary:
    x: Tensor
    y: Tensor
    told: str


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
    base: Records, canary: Canary, victim: int, present: Bools, *, replace_one: bool
) -> Records:
    """Rows node-major over runs: the victim's records with the canary where `present`, as they were elsewhere.

    Under replace-one the canary stands in for the victim's last record.
    """
    runs, sizes = len(present), base.sizes
    starts = [0, *np.cumsum(sizes).tolist()]
    begin, end = starts[victim], starts[victim + 1]
    kept = end - 1 if replace_one else end
    x = torch.cat([base.x, base.x[begin:kept], canary.x[None].to(base.x)])
    y = torch.cat([base.y, base.y[begin:kept], canary.y[None].to(base.y)])
    row_starts, row_sizes = [], []
    for i, size in enumerate(sizes):
        for r in range(runs):
            swapped = i == victim and bool(present[r])
            row_starts.append(len(base.x) if swapped else starts[i])
            row_sizes.append(kept - begin + 1 if swapped else size)
    return Records(x, y, row_sizes, row_starts)
