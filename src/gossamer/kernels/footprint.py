"""Memory that the gradients and the evaluation of a module take, from shapes alone: nothing of it is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.kernels import threads
from gossamer.kernels.apart import copied
from gossamer.kernels.clipped_sum import DEFAULT_MAX_BYTES, slices
from gossamer.kernels.layers import ConvolutionRule, rule_for
from gossamer.kernels.stack import ParameterStack


@dataclass(frozen=True)
class Footprint:
    """Bytes of one record: what its gradient holds, and the most that a layer of a forward pass reads and writes."""

    gradient: int
    widest_layer: int
    convolves: bool  # then the cores work on slices of their own

    def of_lots(self, nodes: int, lot: float) -> float:
        """Bytes that one call for the lots of all nodes holds at a time."""
        cores = threads.cores() if self.convolves else 1
        records = max(1, math.ceil(lot))
        plan = slices(max(1, nodes), records, self.gradient, DEFAULT_MAX_BYTES, cores)
        return float(plan.nodes * plan.records * self.gradient * (cores if plan.parallel else 1))


def footprint(module: nn.Module, shape: tuple[int, ...], *, own: bool = False) -> Footprint:
    """Of a module, which may be without values ("meta"), for records of this shape.

    The forward of a copy runs once on a blank record; where it fails, nothing is known but the parameters. A user's
    `own` may have to be computed record by record, with every gradient written out, and is taken to be.
    """
    parameters, found = list(module.parameters()), _Noted()
    try:
        copy = copied(module)
        for layer in copy.modules():
            if not any(layer.children()):
                layer.register_forward_hook(found.note)
        device = parameters[0].device if parameters else None
        blank = torch.zeros(1, *shape, dtype=torch.float32 if shape else torch.int64, device=device)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy(blank)
    except Exception:  # the module's own code; what is wrong with it is said where it is asked to compute
        found = _Noted()
    if own or found.without_rule:
        found.held += 8 * ParameterStack(module).dim
    return Footprint(found.held, found.widest, found.convolves)


@dataclass
class _Noted:
    """What the layers of a forward pass hold."""

    held: int = 0
    widest: int = 0
    convolves: bool = False
    without_rule: bool = False

    def note(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            return
        rule = rule_for(layer)
        self.held += output.nbytes if rule is None else rule.footprint(inputs[0], output)
        self.widest = max(self.widest, inputs[0].nbytes + output.nbytes)
        self.convolves |= isinstance(rule, ConvolutionRule)
        self.without_rule |= rule is None and bool(layer._parameters)
