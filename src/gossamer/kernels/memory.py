"""Memory that gradients and evaluation take: slices of lots, footprints of modules, freed memory."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gossamer.kernels import threads
from gossamer.kernels.apart import copied
from gossamer.kernels.layers import ConvolutionRule, rule_for
from gossamer.kernels.rounding import even, room
from gossamer.kernels.stack import ParameterStack

DEFAULT_MAX_BYTES = 1 << 30
TILE_BYTES = 1 << 25  # working set of one slice: larger ones leave the cache, smaller ones are all overhead
PRODUCTS_BYTES = 1 << 27  # of one that is matrix products, to which the cache matters less than the number of calls
PARALLEL_BYTES = 1 << 22  # below this the threads would only wait for each other
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
CALL = 3  # records that could be computed in the time that a call takes by itself
LARGEST_KEPT = 1 << 25  # glibc's own limit for blocks on its heap


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc, where it is the C library, to keep freed blocks; return whether that was done."""
    library: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    limits = (M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, (1 << 31) - 1)
    return all(library.mallopt(*limit) for limit in limits)


class Slices(NamedTuple):
    """How many nodes and how many of their records go into one slice; whether slices run side by side.

    alone: records of a slice of one node, where that may not show in its sum
    """

    nodes: int
    records: int
    parallel: bool
    alone: int = 0


@functools.lru_cache
def slices(
    nodes: int,
    lot: int,
    bytes_per_record: int,
    max_bytes: int,
    cores: int,
    bytes_per_node: int = 0,
    tile: int = TILE_BYTES,
) -> Slices:
    """The cost model. It looks at sizes only, never at a clock, so that equal runs give equal numbers.

    `bytes_per_node` are read and written whatever the lot: no reason for smaller slices, but for more cores.
    """
    size = max(1, bytes_per_record)
    fits = max(1, min(max_bytes // cores, tile) // size)
    if fits < lot:  # one node at a time, its lot whole if memory allows
        return Slices(1, min(lot, max(1, max_bytes // cores // size)), cores > 1 and nodes > 1)
    parallel = cores > 1 and nodes > 1 and nodes * (lot * size + bytes_per_node) >= PARALLEL_BYTES
    at_once = cores if parallel else 1

    def work(rows: int) -> int:
        """Places that a core computes, with those that calls are padded to, and what a call itself costs."""
        calls, left = -(-(nodes // rows) // at_once), -(-(nodes % rows) // at_once)
        return calls * (rows * even(lot, rows) + CALL) + left * (even(lot, 1) + CALL)

    most = min(nodes, fits // lot)
    return Slices(min(range(most, max(0, most - 32), -1), key=work), lot, parallel)


class Footprint(NamedTuple):
    """Bytes of one record: what its gradient holds, and the most that a layer of a forward pass reads and writes."""

    gradient: int
    widest_layer: int
    convolves: bool  # then the cores work on slices of their own

    def of_lots(self, nodes: int, lot: float) -> float:
        """Bytes that one call for the lots of all nodes holds at a time."""
        cores = threads.cores() if self.convolves else 1
        records = room(max(lot, 1), varies=True)
        tile = TILE_BYTES if self.convolves else PRODUCTS_BYTES
        plan = slices(max(1, nodes), records, self.gradient, DEFAULT_MAX_BYTES, cores, tile=tile)
        return float(plan.nodes * plan.records * self.gradient * (cores if plan.parallel else 1))


def footprint(module: nn.Module, shape: tuple[int, ...], *, own: bool = False) -> Footprint:
    """Of a module, which may be without values ("meta"), for records of this shape.

    The forward of a copy runs once on a blank record; where it fails, nothing is known but the parameters. A user's
    `own` may have to be computed record by record, with every gradient written out, and is taken to be.
    """
    # Of each layer: gradient, read and written, convolves, without a rule.
    layers: list[tuple[int, int, bool, bool]] = []

    def note(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            return
        rule = rule_for(layer)
        held = output.nbytes if rule is None else rule.footprint(inputs[0], output)
        unknown = rule is None and bool(layer._parameters)
        layers.append((held, inputs[0].nbytes + output.nbytes, isinstance(rule, ConvolutionRule), unknown))

    try:
        copy = copied(module)
        for layer in copy.modules():
            if not any(layer.children()):
                layer.register_forward_hook(note)
        device = next((parameter.device for parameter in module.parameters()), None)
        blank = torch.zeros(1, *shape, dtype=torch.float32 if shape else torch.int64, device=device)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy(blank)
    except Exception:  # the module's own code; what is wrong with it is said where it is asked to compute
        layers.clear()
    held, sizes, convolves, unknown = zip(*layers, strict=True) if layers else ((), (), (), ())
    written = 8 * ParameterStack(module).dim if own or any(unknown) else 0
    return Footprint(sum(held) + written, max(sizes, default=0), any(convolves))
