"""Estimates of a run's memory and time, from public numbers alone and before anything of it is allocated.

Memory is an upper bound on what was measured: `benchmarks/memory.py` fits the constants and writes the table in
docs/performance.md. Time is a lower bound: a run that is let through may still be slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from gossamer.algorithms.base import Algorithm
from gossamer.config.schema import RunConfig
from gossamer.data.arrays import format_bytes, free_memory, is_mapped, resident
from gossamer.errors import UserError
from gossamer.kernels.memory import Footprint
from gossamer.kernels.memory import footprint as footprint_of
from gossamer.kernels.stack import ParameterStack
from gossamer.models.layers import split_records
from gossamer.training.data import DataFacts

MANY = 1000  # nodes: a graph of more that follows a rule is never listed
ARC_IN_ARRAYS = 150.0  # bytes of a link that is in no list
MOST_SECONDS = 30 * 86400.0
# Bytes: of a process that trains hardly anything, of torch's convolutions, of a link, of a planned draw.
ITSELF, CONVOLUTIONS, ARC, DRAW = 580e6, 80e6, 600.0, 2000.0
# Bytes of a parameter: of the point and its gradient, of every vector that the algorithm keeps, of a node's message.
POINT, VECTOR, MESSAGE = 13.0, 15.0, 10.0
# Of the first look at a module, of one node: gradients of three records, one in double precision with its module. What
# is freed then stays with the process, in pieces into which not all that follows fits.
LOOK = 3 * 4.0 + 2 * 4.0 + 4 * 8.0
# Times their size in memory: records, those of a table with names, the slice of the lots that is computed, an
# evaluation.
RECORDS, TABLE, WORKING, EVALUATION = 3.0, 8.5, 1.5, 1.5
EVALUATED = 2000  # records of a hold-out at a time
# Seconds on a fast core: of a draw at a node, of a draw in a plan, and of a number that is multiplied.
AT_NODE, IN_PLAN, NUMBER = 1e-5, 1e-6, 2e-10
MOST_DIFFERENT, MOST_ALIKE = 30_000, 200_000  # draws that are priced in about ten seconds
SMALL = 10**6  # parameters of a model that is made for a look at it; of larger ones the shapes are followed


class Size(NamedTuple):
    """Of a model."""

    parameters: int
    footprint: Footprint  # what its gradients take


@dataclass(frozen=True)
class Estimate:
    """Memory and time of a run; the parts of the memory by what they belong to."""

    memory: dict[str, float]  # bytes, at most, besides the process itself
    seconds: float  # at least

    @property
    def total(self) -> float:
        return ITSELF + math.fsum(self.memory.values())


def estimate(
    config: RunConfig,
    algorithm: Algorithm,
    *,
    hosted: int,
    facts: DataFacts | None = None,
    module: nn.Module | None = None,
) -> Estimate:
    """With `hosted` nodes here; without model and lots until the records are known. `module`: the user's own."""
    n, steps, arcs, parameters, lot = config.nodes, config.rounds * algorithm.draws, _arcs(config), 0, 0.0
    weight = POINT + VECTOR * _vectors(algorithm)
    # Of many nodes that follow a rule no edge is ever listed: it is in arrays alone.
    graph, dataset = config.topology, None if facts is None else facts.dataset
    arc = ARC if not graph.by_rule or graph.dropout or graph.slow or n <= MANY else ARC_IN_ARRAYS
    read = config.data.bytes_read
    if dataset is not None:  # at the peak of loading; what is mapped takes none that others could not have
        arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
        held = sum(part.nbytes for part in arrays if not is_mapped(part))
        read = max(read, (TABLE if dataset.columns else RECORDS) * held)
    memory = {
        f"topology.kind = {graph.kind!r} with nodes = {n}": arc * arcs,
        f"data.kind = {config.data.kind!r}": read,
        f"rounds = {config.rounds}": DRAW * steps,
    }
    if facts is not None:
        parameters, footprint = size_of(config, facts.shape, facts.outputs, module)
        lots = [config.privacy.sampling.lot_of(J, i)[1] for i, J in enumerate(facts.records)]
        lot, numbers = facts.records_of_unit * max(lots), math.prod(facts.shape)
        heard = min(hosted * arcs / n, n - hosted)  # nodes elsewhere whose messages come here
        name = f"model.kind = {config.model.kind!r} with {parameters} parameters on nodes = {hosted}"
        memory[name] = hosted * (weight * parameters + 8.0 * lot * numbers) + MESSAGE * heard * parameters
        memory["the first look at the model"] = LOOK * parameters
        working = WORKING * footprint.of_lots(hosted, lot) + CONVOLUTIONS * footprint.convolves
        memory[f"the gradient of lots of {lot:.4g} records"] = working
        rows = EVALUATED if dataset is None else min(EVALUATED, len(dataset.x_test))
        memory[f"the evaluation of model.kind = {config.model.kind!r}"] = EVALUATION * rows * footprint.widest_layer
    work = hosted * (AT_NODE + NUMBER * parameters * max(1.0, lot))
    return Estimate(memory, steps * (IN_PLAN + work))


def refuse_beyond_machine(
    config: RunConfig,
    algorithm: Algorithm,
    *,
    hosted: int,
    facts: DataFacts | None = None,
    module: nn.Module | None = None,
) -> None:
    """Refuse what `estimate` says is too much: one sentence about the part that takes most."""
    needs = estimate(config, algorithm, hosted=hosted, facts=facts, module=module)
    free, held = free_memory(), resident()
    if needs.total > free + held:
        most = max(needs.memory, key=lambda part: needs.memory[part])
        raise UserError(
            f"{most} would take about {format_bytes(needs.memory[most])} of memory, the run "
            f"{format_bytes(needs.total)}, and this machine has {format_bytes(free)} free; make it smaller, "
            "or use --force to try."
        )
    if needs.seconds > MOST_SECONDS:
        raise UserError(
            f"this run would take at least {needs.seconds / 86400:.3g} days: fewer rounds, fewer nodes, smaller lots "
            "or a smaller model take less; use --force to try."
        )


def refuse_long_pricing(config: RunConfig, draws: int) -> None:
    """Composing hundreds of thousands of different releases takes minutes, and is refused without --force."""
    privacy = config.privacy
    if privacy.sampling.kind in ("full", "one-pass") or draws <= MOST_DIFFERENT:
        return
    shape = privacy.noise.schedule.shape(draws, privacy.clip.schedule(draws))
    alike = len({shape(k) for k in range(0, draws, draws // 16)}) == 1
    most = MOST_ALIKE if alike else MOST_DIFFERENT
    if draws > most:
        each = "equal" if alike else "different"
        raise UserError(
            f"rounds = {config.rounds} means {draws:,} draws with {each} noise at every node, and to compute their ε "
            f"would take minutes; use at most {most:,} draws, or --force to wait."
        )


def network(config: RunConfig, shape: tuple[int, ...], outputs: int, module: nn.Module | None = None) -> nn.Module:
    """The configuration's network, or the user's own, with the adapters of [lora]; for records of several parts too."""
    model: nn.Module = config.model.make(shape, outputs) if module is None else module
    if config.lora is not None:
        model = config.lora.adapt(model, seed=config.seed)
    return split_records(model, config.data.layout)


def size_of(config: RunConfig, shape: tuple[int, ...], outputs: int, module: nn.Module | None = None) -> Size:
    """Of the configuration's model, or of the user's own: without making one that is large."""
    if module is not None:
        return Size(ParameterStack(module).dim, footprint_of(module, shape, own=True))
    with torch.device("meta"):
        model = network(config, shape, outputs)
    count = ParameterStack(model).dim
    if count <= SMALL:  # without values the first forward of a process takes two seconds
        with torch.random.fork_rng(devices=[]):
            model = network(config, shape, outputs)
    return Size(count, footprint_of(model, shape))


def _vectors(algorithm: Algorithm) -> int:
    """Vectors as long as the model in an algorithm's state; those that are empty between rounds are not within one."""
    tensors = [part for part in algorithm.init(torch.zeros(1, 8)) if isinstance(part, torch.Tensor)]
    return max(1, sum(part.shape[1:] in ((8,), (0,)) for part in tensors))


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
