"""From a record that moves a sum to one that moves it more."""

from __future__ import annotations

import copy
import math
import time
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.auditing.odd_records import OddRecord
from gossamer.auditing.scenes import Scene
from gossamer.kernels.stack import ParameterStack


class Height(Protocol):
    """What is climbed: `excess` says how high a record is, and counts what was tried."""

    module: nn.Module

    @property
    def tried(self) -> int: ...

    def excess(self, scene: Scene, record: OddRecord) -> float: ...


def climb(
    probe: Height, scene: Scene, record: OddRecord, loss: Any, tries: int, seed: int, *, until: float
) -> None:
    """From a record uphill: a step in a direction, or against it, is kept where it moves more; steps adapt.

    Directions are the derivative of the other records' losses by this record (0 where records are alone), the record
    itself (a change of size), the same in all places, and random ones.
    """
    if not record.x.is_floating_point() or not bool(record.x.isfinite().all()):
        return
    chance = torch.Generator().manual_seed(seed)
    step, turn, stuck, before = 0.3, 0, 0, probe.tried
    best, height = record, probe.excess(scene, record)
    while probe.tried - before + 2 <= tries and stuck < 24 and time.perf_counter() < until:
        along, turn = _direction(probe, scene, best, loss, turn, chance), turn + 1
        size = best.x.double().square().mean().sqrt().clamp(1e-30, 1e30)
        improved = False
        for sign in (1.0, -1.0):
            x = (best.x.double() + sign * step * float(size) * along.double()).to(best.x)
            tried = OddRecord(x, record.y, f"{record.kind}, improved")
            reached = probe.excess(scene, tried)
            if reached > height + 1e-9:
                best, height, improved = tried, reached, True
                break
        step = min(step * 2, 10.0) if improved else max(step / 1.5, 1e-4)
        stuck = 0 if improved else stuck + 1


def _direction(
    probe: Height, scene: Scene, record: OddRecord, loss: Any, turn: int, chance: torch.Generator
) -> Tensor:
    """Of length √size, so that a step is in units of the record's own numbers."""
    kinds = turn % 4
    if kinds == 0:
        along = derivative(probe.module, scene, record, loss)
        if along is not None:
            return along * (math.sqrt(along.numel()) / max(float(along.norm()), 1e-30))
    if kinds == 1:
        return record.x / record.x.double().square().mean().sqrt().clamp_min(1e-30).to(record.x)
    if kinds == 2:
        return torch.ones_like(record.x)
    return torch.randn(record.x.shape, generator=chance).to(record.x)


def derivative(module: nn.Module, scene: Scene, record: OddRecord, loss: Any) -> Tensor | None:
    """Of the losses of all other records of the batch, by this one's features: None where they do not depend on it.

    A guide only: whether the run's sums depend on it is for the sums to say.
    """
    batch = scene.with_record(record)
    place = scene.victim * batch.mask.shape[1] + scene.place
    x = batch.x.flatten(0, 1).clone().requires_grad_()
    own = copy.deepcopy(module)
    point = scene.points[scene.victim : scene.victim + 1]
    values = {name: view[0] for name, view in ParameterStack(own).views(point).items()}
    try:
        with torch.enable_grad():
            losses = loss(functional_call(own, values, (x,)), batch.y.flatten(0, 1))
            others = torch.ones_like(losses)
            others[place] = 0
            (slope,) = torch.autograd.grad((losses * others).sum(), x, allow_unused=True)
    except Exception:  # data-dependent code, in-place changes: then there is no derivative to follow
        return None
    if slope is None or not bool(slope[place].isfinite().all()) or not bool(slope[place].any()):
        return None
    return slope[place].detach()
