"""What a run would take of this machine, from public numbers alone and before anything of it is allocated.

Lower bounds, not forecasts: a run that is let through may still be slow, one that is refused could not have ended well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from gossamer.config.schema import RunConfig
from gossamer.data.limits import free_memory, in_words
from gossamer.errors import UserError

MOST_SECONDS = 30 * 86400.0
ARC, DRAW, WEIGHT = (
    100.0,
    1000.0,
    24.0,
)  # bytes of a link, of a planned draw, of a parameter at a node: six copies
# Seconds on a fast core: of a draw at a node, of a draw in a plan, and of a number that is multiplied.
AT_NODE, IN_PLAN, NUMBER = 1e-5, 1e-6, 2e-10


@dataclass(frozen=True)
class Estimate:
    """At least so much; the parts by what they belong to."""

    memory: dict[str, float]  # bytes
    seconds: float

    @property
    def total(self) -> float:
        return math.fsum(self.memory.values())


def estimate(
    config: RunConfig, *, draws: int, hosted: int, parameters: int = 0, lot: float = 0.0, numbers: int = 0
) -> Estimate:
    """`draws` of a round; `hosted` nodes are here; `numbers` of a record, `lot` of them in a draw of a node."""
    n, steps = config.nodes, config.rounds * draws
    memory = {
        f"topology.kind = {config.topology.kind!r} with nodes = {n}": ARC * _arcs(config),
        f"data.kind = {config.data.kind!r}": config.data.bytes_read,
        f"rounds = {config.rounds}": DRAW * steps,
        f"model.kind = {config.model.kind!r} with {parameters} parameters on nodes = {hosted}": hosted
        * (WEIGHT * parameters + 8.0 * lot * numbers),
    }
    work = hosted * (AT_NODE + NUMBER * parameters * max(1.0, lot))
    return Estimate(memory, steps * (IN_PLAN + work))


def refuse_beyond_machine(found: Estimate) -> None:
    """One sentence about the part that takes most."""
    free = free_memory()
    most = max(found.memory, key=lambda part: found.memory[part])
    if found.total > free:
        raise UserError(
            f"{most} would take about {in_words(found.memory[most])} of memory, and this machine has {in_words(free)} "
            "free; make it smaller, or use --force to try."
        )
    if found.seconds > MOST_SECONDS:
        raise UserError(
            f"this run would take at least {found.seconds / 86400:.3g} days: fewer rounds, fewer nodes, smaller lots "
            "or a smaller model take less; use --force to try."
        )


def size_of(config: RunConfig, shape: tuple[int, ...], outputs: int) -> int:
    """Parameters of the configuration's model, counted without making them."""
    with torch.device("meta"):
        module: nn.Module = config.model.make(shape, outputs)
    return sum(parameter.numel() for parameter in module.parameters())


def _arcs(config: RunConfig) -> float:
    """About how many links there are, over all graphs that are kept."""
    n, kind = float(config.nodes), config.topology
    if config.baseline == "no-communication":
        return n
    if kind.kind in ("complete", "matrix"):
        return n * n
    share = getattr(kind, "p", None) or getattr(kind, "probability", None)
    if isinstance(share, float):
        return n * n * share
    degree = getattr(kind, "degree", None)
    return n * float(degree if isinstance(degree, int) else math.log2(n + 1) + 4)
