"""Clipped sums by book-keeping: one forward pass, one backward pass, all nodes at once.

A private copy of the module has the forward of each parametrised layer replaced: it computes the layer with
the stacked weights of all nodes, and its backward notes the layer's inputs and output gradients, from which
the rules of `layers.py` know every record's gradient norm. Then the weights are known and each layer adds its
weighted sum: no per-sample gradients, no second backward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.kernels.finite import NotFiniteError, refuse_infinite
from gossamer.kernels.layers import ConvolutionRule, Measured, Parameters, Rule, rule_for
from gossamer.kernels.stack import ParameterStack

CHECKED_RECORDS = 2
CHECK_TOLERANCE = 1e-2  # of the norm: above float32 rounding in deep networks, below a forgotten layer


class NotSupportedError(Exception):
    """Book-keeping would be wrong for this module; the message says why."""


def rules_of(module: nn.Module) -> dict[str, Rule]:
    """The rule of every layer with parameters, by the layer's name."""
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    if len(names) != len(list(module.parameters())):
        raise NotSupportedError("two layers share a parameter")
    rules: dict[str, Rule] = {}
    for name, layer in module.named_modules():
        if not any(parameter is not None for parameter in layer._parameters.values()):
            continue
        rule = rule_for(layer)
        if rule is None:
            raise NotSupportedError(
                f"there is no rule for {type(layer).__name__} ({name or 'the module itself'})"
            )
        rules[name] = rule
    if not rules:
        raise NotSupportedError("the module has no parameters")
    return rules


class BookKeeping:
    """Σ_b w(‖g_ib‖) g_ib for modules made of layers that have a rule. For one thread: copy it for two."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.original, self.loss = module, loss
        self.stack = ParameterStack(module)
        self.rules = rules_of(module)
        self.owners = [name.rpartition(".")[::2] for name in self.stack.names]
        self.prefers_threads = any(isinstance(rule, ConvolutionRule) for rule in self.rules.values())
        self.parameters: dict[str, Parameters] = {}
        self.records: dict[str, Measured] = {}
        self.called: set[str] = set()
        self.bytes_held = self.bytes_per_record = 0
        self.module = copy.deepcopy(module).requires_grad_(False)
        for name, rule in self.rules.items():
            layer = self.module.get_submodule(name)
            for parameter in layer.parameters(recurse=False):
                parameter.fill_(
                    torch.nan
                )  # never used, and a module that uses them past its layer is found out
            layer.forward = self._replacement(name, rule)
        self.twins = list(zip(self.module.modules(), module.modules(), strict=True))

    def copy(self) -> BookKeeping:
        return BookKeeping(self.original, self.loss)

    def weighted(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Callable[[Tensor], Tensor],
        *,
        target: Tensor,
        add: bool,
    ) -> Tensor:
        """Put the sums of a slice, or add them, into `target` (m, d); return the norms (m, B)."""
        for mine, theirs in self.twins:
            mine.training = theirs.training
        return self._run(points, x, y, mask, weigh, target=target, add=add)

    def _run(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Callable[[Tensor], Tensor],
        *,
        target: Tensor,
        add: bool,
    ) -> Tensor:
        self.parameters, self.bytes_held = self._by_layer(points), 0
        self.records.clear()
        self.called.clear()
        with torch.enable_grad():
            losses = self.loss(self.module(x.flatten(0, 1)), y.flatten(0, 1))
            if losses.requires_grad:
                torch.autograd.backward(losses, mask.flatten().to(losses.dtype))
        if len(self.records) != len(self.rules):
            missing = next(name for name in self.rules if name not in self.records)
            raise NotSupportedError(f"layer {missing} took no part in the loss")
        with torch.no_grad():
            first, *others = (record.square_norms for record in self.records.values())
            square = sum(others, first)
            norms = torch.where(mask, square.clamp_(min=0).sqrt_().view(mask.shape), 0.0)
            refuse_infinite(norms)
            weights = torch.where(mask, weigh(norms), 0.0)
            places = self._by_layer(target)
            for name, record in self.records.items():
                record.add_to(weights, places[name], add)
        self.records.clear()
        self.parameters = {}
        return norms

    def check(self, points: Tensor, x: Tensor, y: Tensor) -> None:
        """Compare a few made-up records with plain gradients, one at a time; learn the bytes a record needs.

        Our tests check the rules, but not our users' modules: one may use a layer's weights without calling
        the layer, or mix the records of a batch. Raises NotSupportedError then. Made-up, for a lot may hold a
        single record, and a mixing module is right about that one.
        """
        # Beside the point, too: at 0, where some models start, many gradients vanish and prove nothing.
        away = 0.05 * torch.randn(1, self.stack.dim, generator=torch.Generator().manual_seed(1))
        few = points[:1] + away.to(points), *_made_up(x, y)
        lot = few[1].shape[1]
        reference = copy.deepcopy(self.original).eval()  # dropout would differ from run to run
        self.module.eval()
        total = torch.zeros_like(few[0])
        ones = torch.ones(1, lot, dtype=torch.bool, device=x.device)
        try:
            norms = self._run(*few, ones, torch.ones_like, target=total, add=False)
        except NotFiniteError:
            raise NotSupportedError("its gradients are not finite: not only its layers act") from None
        expected = torch.zeros_like(total)
        own = {
            name: view[0].detach().requires_grad_() for name, view in self.stack.views(few[0].clone()).items()
        }
        for b in range(lot):
            with torch.enable_grad():
                loss = self.loss(
                    functional_call(reference, own, (few[1][0, b : b + 1],)), few[2][0, b : b + 1]
                )
                parts = torch.autograd.grad(
                    loss.sum(), list(own.values()), materialize_grads=True, allow_unused=True
                )
            gradient = torch.cat([part.flatten() for part in parts])
            expected[0] += gradient
            norm = gradient.norm()
            if not bool((norms[0, b] - norm).abs() <= CHECK_TOLERANCE * norm + 1e-12):
                raise NotSupportedError(
                    "its per-sample norms differ from plain gradients: not only its layers act"
                )
        if not bool((total - expected).norm() <= CHECK_TOLERANCE * norms.sum() + 1e-12):
            raise NotSupportedError("its gradients differ from plain gradients: not only its layers act")
        self.bytes_per_record = self.bytes_held // lot

    def _replacement(self, name: str, rule: Rule) -> Callable[[Tensor], Tensor]:
        def forward(a: Tensor) -> Tensor:
            if name in self.called:
                raise NotSupportedError(f"layer {name} is called more than once")
            self.called.add(name)
            anchor = torch.empty(0, requires_grad=True)  # without it autograd would skip the first layer
            call = _Call(self, name, rule)
            out: Tensor = _Noted.apply(rule.prepare(a), anchor, call)  # type: ignore[no-untyped-call]
            return rule.finish(out)

        return forward

    def _by_layer(self, points: Tensor) -> dict[str, Parameters]:
        layers: dict[str, Parameters] = {name: {} for name in self.rules}
        for (layer, own), view in zip(self.owners, self.stack.views(points).values(), strict=True):
            layers[layer][own] = view
        return layers


def _made_up(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two records of the shape of x (m, B, …): normal values, or the tokens 0 and 1; their targets are 0."""
    shape = (1, CHECKED_RECORDS, *x.shape[2:])
    if x.is_floating_point():
        values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(x)
    else:
        values = torch.arange(CHECKED_RECORDS).view(1, -1, *[1] * (x.ndim - 2)).expand(shape).to(x)
    return values, y.new_zeros(1, CHECKED_RECORDS, *y.shape[2:])


@dataclass
class _Call:
    """One call of one layer, from its forward to its backward."""

    owner: BookKeeping
    name: str
    rule: Rule
    kept: Any = None

    @property
    def parameters(self) -> Parameters:
        return self.owner.parameters[self.name]


class _Noted(torch.autograd.Function):
    """A layer for stacked weights whose backward measures per-sample gradients instead of summing them."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, anchor: Tensor, call: _Call) -> Tensor:
        out, call.kept = call.rule.forward(call.parameters, a)
        call.owner.bytes_held += call.rule.footprint(a, out)
        ctx.save_for_backward(a)
        ctx.call = call
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None]:
        (a,), call = ctx.saved_tensors, ctx.call
        call.owner.records[call.name] = call.rule.measure(call.parameters, a, g, call.kept)
        call.kept = None
        return (
            call.rule.input_gradient(call.parameters, a, g) if ctx.needs_input_grad[0] else None,
            None,
            None,
        )
