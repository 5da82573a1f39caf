"""Clipped sums by book-keeping: one forward pass, one backward pass, all nodes at once.

The module's graph, known to keep records apart (`apart`), has the forward of each parametrised layer replaced: it
computes the layer with the stacked weights of all nodes, and its backward notes the layer's inputs and output
gradients, from which the rules of `layers.py` know every record's gradient norm. Then the weights are known and each
layer adds its weighted sum: no per-sample gradients, no second backward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import dense
from gossamer.kernels.apart import copied, graph_of
from gossamer.kernels.attention import unpacked
from gossamer.kernels.direct import is_plain_pool
from gossamer.kernels.layers import ConvolutionRule, Measured, Parameters, Rule, Use, joined, rule_for
from gossamer.kernels.operations import MixingError
from gossamer.kernels.persons import RECORDS, Part
from gossamer.kernels.random_layers import bytes_of, dropout, random_inputs
from gossamer.kernels.rounding import NotFiniteError, all_finite, beside, refuse_infinite, root
from gossamer.kernels.stack import ParameterStack

LONG = 1 << 40  # records: of such a lot everything is added up in double precision


class NotSupportedError(Exception):
    """Book-keeping would be wrong for this module; the message says why."""


def owners_of(module: nn.Module) -> dict[str, str]:
    """Of every layer with trained parameters the first layer that has the same ones."""
    first, owners = dict[tuple[int, ...], str](), dict[str, str]()
    for name, layer in module.named_modules():
        own = tuple(id(p) for p in layer._parameters.values() if p is not None and p.requires_grad)
        if own:
            owners[name] = first.setdefault(own, name)
            kinds = {type(module.get_submodule(one)) for one in (name, owners[name])}
            if owners[name] != name and not kinds <= {nn.Linear, nn.Embedding}:
                raise NotSupportedError("two layers share their parameters")
    if len(set[int]().union(*first)) != sum(map(len, first)):  # a weight, but each its bias
        raise NotSupportedError("two layers share one of their parameters")
    return owners


def rules_of(module: nn.Module) -> dict[str, Rule]:
    """The rule of every layer with trained parameters, by the layer's name; frozen layers need none."""
    rules: dict[str, Rule] = {}
    for name, layer in module.named_modules():
        own = [p.requires_grad for p in layer._parameters.values() if p is not None]
        if not own:
            continue
        what = f"{type(layer).__name__} ({name or 'the module itself'})"
        rule = rule_for(layer)
        if not any(own) and (rule is not None or not isinstance(layer, nn.Embedding)):
            continue  # an embedding without a rule changes its table when it is read
        if rule is None:
            raise NotSupportedError(f"there is no rule for {what}")
        if not all(own):
            raise NotSupportedError(f"some parameters of {what} are frozen and some are not")
        rules[name] = rule
    if not rules:
        raise NotSupportedError("the module has no trained parameters")
    return rules


class BookKeeping:
    """Σ_b w(‖g_ib‖) g_ib for modules whose graph keeps records apart and whose layers have a rule. For one thread."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> None:
        """x (m, B, …) and y show shapes and types alone."""
        self.original, self.loss = module, loss
        self._blank = x.new_zeros(1, 1, *x.shape[2:]), y.new_zeros(1, 1, *y.shape[2:])
        self.stack = ParameterStack(module)
        try:
            known = copied(module)
        except Exception as reason:  # the module's own code
            raise NotSupportedError(f"it cannot be copied ({type(reason).__name__})") from None
        renamed = unpacked(known)
        self.rules, self.first = rules_of(known), owners_of(known)
        self.owners = [renamed.get(name, name).rpartition(".")[::2] for name in self.stack.names]
        self.layers: dense.Layers | None = None  # of a network that is computed by compiled loops
        self._bounded = False  # is the last sum finite for sure?
        self.parameters: dict[str, Parameters] = {}
        self.records: dict[str, Measured] = {}
        self.uses: dict[str, list[Use]] = {}
        self.units = RECORDS
        self._most = 0.0
        self.bytes_held = self.bytes_per_record = 0
        # Of persons, gradients of these layers are written out; of the others they are only measured.
        written = [name for name, rule in self.rules.items() if rule.writes_persons]
        sizes = zip(self.owners, self.stack.shapes, strict=True)
        self.bytes_per_person = 4 * sum(prod(shape) for (name, _), shape in sizes if name in written)
        try:
            self.graph = graph_of(known, loss, x.flatten(0, 1), y.flatten(0, 1))
        except MixingError as reason:
            raise NotSupportedError(str(reason)) from None
        for name, rule in self.rules.items():
            try:
                layer = self.graph.get_submodule(f"module.{name}".removesuffix("."))
            except AttributeError:
                raise NotSupportedError(f"layer {name} took no part in the loss") from None
            layer.forward = self._replacement(name, rule)
        for name, own in self.graph.named_modules():
            if isinstance(own, nn.Embedding) and name.removeprefix("module").removeprefix(".") not in self.rules:
                own.forward = partial(_rows_of, own)  # type: ignore[method-assign]
        called = [str(node.target) for node in self.graph.graph.nodes if node.op == "call_module"]
        names = [name.removeprefix("module").removeprefix(".") for name in called]
        calls = Counter(self.first[name] for name in names if name in self.rules)
        self.repeated = {name for name, count in calls.items() if count > 1}
        self._pool_where_convolved(called)
        self.random = random_inputs(self.graph, {F.dropout: dropout, nn.Dropout: dropout})

    def _pool_where_convolved(self, called: list[str]) -> None:
        """A plain max pool right behind a convolution that nothing else reads becomes part of it."""
        for node in self.graph.graph.nodes:
            rule = self.rules.get(str(node.target).removeprefix("module").removeprefix("."))
            if node.op != "call_module" or not isinstance(rule, ConvolutionRule) or len(node.users) != 1:
                continue
            (reader,) = node.users
            pool = self.graph.get_submodule(reader.target) if reader.op == "call_module" else None
            if pool is not None and is_plain_pool(pool) and not rule.flat and called.count(str(reader.target)) == 1:
                rule.pool = True
                pool.forward = nn.Identity().forward

    def copy(self) -> BookKeeping:
        twin = BookKeeping(self.original, self.loss, *self._blank)
        twin.layers = self.layers
        return twin

    @property
    def prefers_threads(self) -> bool:
        convolves = any(isinstance(rule, ConvolutionRule) for rule in self.rules.values())
        return convolves or self.layers is not None

    @property
    def bytes_per_node(self) -> int:
        """Where the loops are compiled, they read its weights and write its sum."""
        return 0 if self.layers is None else 8 * self.stack.dim

    def measure_bytes(self, points: Tensor, x: Tensor, y: Tensor) -> None:
        """Learn what a record needs, on two blank ones."""
        blank = x.new_zeros(1, 2, *x.shape[2:]), y.new_zeros(1, 2, *y.shape[2:])
        mask = torch.ones(1, 2, dtype=torch.bool, device=x.device)
        random = [x.new_zeros(1, 2, *shape) for shape in self.random]
        try:
            self.weighted(Part(points[:1], *blank, mask, random), torch.ones_like, torch.zeros_like(points[:1]))
        except NotFiniteError:
            pass
        except Exception as reason:  # the module's own operations
            raise NotSupportedError(f"it fails on a blank record ({type(reason).__name__})") from None
        self.bytes_per_record = self.bytes_held // 2 + bytes_of(self.random)

    def wrote_finite(self, target: Tensor) -> bool:
        """Is what the last call put into `target` finite? Known without a look where weighted norms bound it."""
        return self._bounded or all_finite(target)

    def weighted(self, part: Part, weigh: Callable[[Tensor], Tensor], target: Tensor) -> Tensor:
        """Put the sums of a part into `target` (m, d); return the norms (m, B), of persons (m, n), none too small."""
        self._bounded = False
        if self.layers is not None and dense.suits(part, self.bytes_per_record):
            norms, self._bounded = dense.weighted(self.layers, part, weigh, target)
            return norms
        units, mask = part.units, part.mask
        self.units, there = units, units.any_of(mask)
        self.parameters, self.bytes_held = self._by_layer(part.points), 0
        planned = part.most or there.shape[1]
        self._most = beside(mask.shape[1], planned)
        self.records.clear()
        self.uses.clear()
        with torch.enable_grad():
            # Not `self.graph(…)`, which prints where a record fails.
            losses = self.graph.forward(*(given.flatten(0, 1) for given in (part.x, part.y, *part.random)))
            if losses.requires_grad:
                # The same as handing `mask` over as the gradient, for which torch would first import sympy.
                torch.autograd.backward((losses * mask.flatten()).sum())
        with torch.no_grad():
            for name, uses in self.uses.items():
                own = self.parameters[name]
                rule, a, g, cache = joined(uses, own["weight"].shape[1])
                self.records[name] = rule.measure(own, a, g, cache, units, self._most)
        self.uses.clear()
        missing = next((name for name in self.rules if self.first[name] not in self.records), None)
        if missing is not None:
            raise NotSupportedError(f"layer {missing} took no part in the loss")
        with torch.no_grad():
            first, *others = (record.square_norms for record in self.records.values())
            square = sum(others, first)
            least = [record.least for record in self.records.values() if record.least is not None]
            if least:
                square = torch.maximum(square, sum(least[1:], least[0]))
            norms = torch.where(there, root(square, len(self.records)).view(there.shape), 0.0)
            refuse_infinite(norms)
            norms, weights = units.weighed(norms, there, part.weighs(weigh))
            places = self._by_layer(target)
            lot = max(part.lot, there.shape[1])
            lot = lot if lot <= planned else LONG
            for name, record in self.records.items():
                record.put(weights, places[name], lot)
        self.records.clear()
        self.parameters = {}
        return norms

    def _replacement(self, name: str, rule: Rule) -> Callable[[Tensor], Tensor]:
        def forward(a: Tensor) -> Tensor:
            anchor = torch.empty(0, requires_grad=True)  # without it autograd would skip the first layer
            prepared = rule.prepare(a)
            out: Tensor = _Layer.apply(prepared, anchor, self, name)  # type: ignore[no-untyped-call]
            return rule.finish(out, prepared)

        return forward

    def _by_layer(self, points: Tensor) -> dict[str, Parameters]:
        layers: dict[str, Parameters] = {name: {} for name in self.rules}
        for (layer, own), view in zip(self.owners, self.stack.views(points).values(), strict=True):
            layers[layer][own] = view
        return {name: layers[self.first[name]] for name in self.rules}


def _rows_of(table: nn.Embedding, places: Tensor) -> Tensor:
    """Rows of a frozen table, NaN for a place outside of it: that record is left out and does not end the run."""
    outside = (places < 0) | (places >= table.num_embeddings)
    rows = F.embedding(places.clamp(0, table.num_embeddings - 1), table.weight)
    return rows.masked_fill(outside.unsqueeze(-1), torch.nan)


class _Layer(torch.autograd.Function):
    """A layer for stacked weights whose backward measures per-sample gradients instead of summing them."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, anchor: Tensor, owner: BookKeeping, name: str) -> Tensor:
        rule = owner.rules[name]
        out, ctx.cache = rule.forward(owner.parameters[name], a)
        owner.bytes_held += rule.footprint(a, out)
        if owner.first[name] in owner.repeated:  # joined, a table's places as one-hot rows
            one_hot = a.numel() * owner.parameters[name]["weight"].shape[1] if a.dtype == torch.int64 else 0
            owner.bytes_held += out.element_size() * (a.numel() + out.numel() + one_hot)
        ctx.save_for_backward(a)
        ctx.owner, ctx.name = owner, name
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None, None]:
        (a,), owner, name = ctx.saved_tensors, ctx.owner, ctx.name
        rule, call = owner.rules[name], (owner.parameters[name], a, g, ctx.cache)
        ctx.cache = None
        if owner.first[name] in owner.repeated:
            owner.uses.setdefault(owner.first[name], []).append((rule, a.detach(), g, call[3]))
        else:
            owner.records[name] = rule.measure(*call, owner.units, owner._most)
        return rule.input_gradient(*call) if ctx.needs_input_grad[0] else None, None, None, None
