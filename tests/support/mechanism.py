"""Noise mechanisms of a stated size, and a book in memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gossamer.accounting.releases import Event
from gossamer.mechanism.noise import Levels, Mechanism, NoiseKind
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.silent import Silent
from gossamer.mechanism.schedules import Constant, Schedule


class Book:
    """What was written, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[int, Event]] = []

    def append(self, node: int, event: Event) -> None:
        self.events.append((node, event))


def levels(multiplier: float, nodes: int, shape: Schedule | None = None) -> Levels:
    return Levels(torch.full((nodes,), multiplier, dtype=torch.float64), shape or Constant(1.0))


def noise_of(
    multiplier: float,
    nodes: int,
    kind: NoiseKind | None = None,
    *,
    end: float = math.inf,
    arithmetic: str = "float",
) -> Mechanism:
    """Noise of that many sensitivities on every node; Gaussian unless said otherwise, none at 0."""
    chosen: NoiseKind = kind or (Gaussian() if multiplier else Silent())
    return chosen.make(levels(multiplier, nodes), np.full(nodes, end), arithmetic)


def thinner(parts: Any, times: float) -> Any:
    """The parts of a run with noise that many times smaller than was planned."""
    own = parts.noise.levels
    return replace(parts, noise=replace(parts.noise, levels=replace(own, factor=own.factor / times)))
