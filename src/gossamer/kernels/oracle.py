"""Per-sample gradients of any module, record by record: slower and hungrier than book-keeping.

The gradient of *one* record's loss is traced on a made-up record that has a shape and no values, and what runs on
records afterwards is that trace, a list of torch's operations, once for every record (`vmap`). The module's own Python
never sees a record: it cannot mix two of them, decide by one, or remember one. What cannot be traced so is refused by
the layer's name: Python that asks for values, buffers that are written, numpy, a forward that differs between calls.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import functional_call, functionalize, grad, vmap
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gossamer.errors import UserError
from gossamer.kernels.apart import copied, first_line
from gossamer.kernels.layers import weighted_rows
from gossamer.kernels.persons import Part
from gossamer.kernels.random_layers import DRAWN, bytes_of, is_random, undisturbed, with_random_inputs
from gossamer.kernels.rounding import all_finite, norms_of, refuse_infinite
from gossamer.kernels.stack import ParameterStack

Loss = Callable[[Tensor, Tensor], Tensor]


class Vmap:
    """Σ_b w(‖g_ib‖) g_ib from materialised per-sample gradients."""

    def __init__(self, module: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
        """x (m, B, …) and y show shapes and types alone."""
        self.original, self.loss = module, loss
        self.stack = ParameterStack(module)
        self.bytes_per_person = 4 * self.stack.dim
        self.bytes_per_node, self.prefers_threads = 0, False
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]
        graph = one_record(module, loss, x.shape[2:], x.dtype, y.shape[2:], y.dtype)
        self._of_one, self.random = with_random_inputs(graph, DRAWN)
        # The gradient, and its pieces before they are joined; the numbers that are drawn for it.
        self.bytes_per_record = 8 * self.stack.dim + bytes_of(self.random)
        self._of_all = vmap(vmap(self._of_one, in_dims=(None, 0, 0, 0)))

    def gradients(self, points: Tensor, x: Tensor, y: Tensor, random: Sequence[Tensor] = ()) -> Tensor:
        """The gradient of every record of every node at that node's point: (m, B, d)."""
        nodes, lot = x.shape[:2]
        if nodes == 0 or lot == 0:
            return points.new_zeros(nodes, lot, self.stack.dim)
        with torch.no_grad():
            found = self._of_all(self.stack.views(points.detach()), x, y, list(random))
        return torch.cat([found[name].reshape(nodes, lot, -1) for name in self.stack.names], dim=2)

    def wrote_finite(self, target: Tensor) -> bool:
        """Is what the last call put into `target` finite?"""
        return all_finite(target)

    def weighted(self, part: Part, weigh: Callable[[Tensor], Tensor], target: Tensor) -> Tensor:
        """Put the sums of a part into `target` (m, d); return the norms (m, B), of persons (m, n), none too small."""
        units, there = part.units, part.units.any_of(part.mask)
        gradients = self.gradients(part.points, part.x, part.y, part.random).flatten(0, 1)
        if units.each > 1:
            gradients = units.sums(gradients.masked_fill_(~part.mask.view(-1, 1), 0))
        norms = torch.where(there, norms_of(gradients).view(there.shape), 0.0)
        refuse_infinite(norms)
        norms, weights = units.weighed(norms, there, part.weighs(weigh))
        target.copy_(weighted_rows(weights, gradients, max(part.lot, there.shape[1])))
        return norms


def one_record(
    module: nn.Module, loss: Loss, x: torch.Size, x_type: torch.dtype, y: torch.Size, y_type: torch.dtype
) -> fx.GraphModule:
    """(trained parameters, one record, its target) → the gradient of its loss, as a graph without memory."""
    names, module = ParameterStack(module).names, _copy(module)

    def sample_loss(parameters: dict[str, Tensor], one_x: Tensor, one_y: Tensor) -> Tensor:
        output = functional_call(module, parameters, (one_x.unsqueeze(0),))
        return loss(output, one_y.unsqueeze(0)).squeeze(0)

    return _traced(module, names, grad(sample_loss), (x, x_type), (y, y_type))


def one_output(module: nn.Module, x: torch.Size, x_type: torch.dtype) -> fx.GraphModule:
    """(trained parameters, one record) → the network's outputs as it predicts, as a graph without memory."""
    names, module = ParameterStack(module).names, _copy(module).eval()

    def outputs(parameters: dict[str, Tensor], one_x: Tensor) -> Tensor:
        found: Tensor = functional_call(module, parameters, (one_x.unsqueeze(0),)).squeeze(0)
        return found

    graph = _traced(module, names, outputs, (x, x_type))
    for node in graph.graph.nodes:
        if is_random(node):
            raise refusal("", type(module).__name__, f"it draws random numbers when it predicts ({node.target})")
    return graph


def shape_of(graph: fx.GraphModule) -> torch.Size:
    """Of what the graph gives for a record."""
    (given,) = graph.graph.output_node().all_input_nodes
    return torch.Size(given.meta["val"].shape)


def _copy(module: nn.Module) -> nn.Module:
    try:
        return copied(module).requires_grad_(False)
    except Exception as reason:
        raise refusal("", type(module).__name__, f"it cannot be copied ({first_line(reason)})") from None


def _traced(
    module: nn.Module,
    names: Sequence[str],
    function: Callable[..., Any],
    *given: tuple[torch.Size, torch.dtype],
) -> fx.GraphModule:
    """A function of these parameters and of one record, as torch's own operations and nothing else."""
    parameters = {name: module.get_parameter(name).detach() for name in names}
    device = next(iter(parameters.values())).device if parameters else None
    made_up = [torch.zeros(shape, dtype=kind, device=device) for shape, kind in given]
    from torch.fx.experimental.proxy_tensor import make_fx  # half a second: sympy

    trace = make_fx(functionalize(function, remove="mutations"), tracing_mode="fake", _allow_non_fake_inputs=True)
    with _watched(module) as inside:
        try:
            # Twice with the same copy: what remembers its first call is another graph in the second.
            (graph, again), quiet = undisturbed(lambda: (trace(parameters, *made_up), trace(parameters, *made_up)))
        except Exception as reason:  # the module's own code runs here, and may raise anything
            name, layer = inside[-1] if inside else ("", type(module).__name__)
            raise refusal(name, layer, why(reason)) from None
    _only_torchs_own(graph, type(module).__name__)
    if not (quiet and _same(graph, again)):
        raise refusal("", type(module).__name__, FORGETFUL)
    for node in graph.graph.nodes:
        node.target = _INSTEAD.get(node.target, node.target)
    graph.recompile()
    return graph


def _rows(table: Tensor, places: Tensor, *how: Any, **more: Any) -> Tensor:
    """Rows of a table; NaN for places outside of it, which torch would read in the next of tables that lie together."""
    found: Tensor = torch.ops.aten.embedding.default(table, places.clamp(0, len(table) - 1), *how, **more)
    return torch.where(_outside(places, len(table)), torch.nan, found)


def _rows_backward(gradient: Tensor, places: Tensor, rows: int, *how: Any, **more: Any) -> Tensor:
    """So that a record that read outside of the table has no finite norm and is left out."""
    gradient = torch.where(_outside(places, rows), torch.nan, gradient)
    found: Tensor = torch.ops.aten.embedding_dense_backward.default(
        gradient, places.clamp(0, rows - 1), rows, *how, **more
    )
    return found


def _outside(places: Tensor, rows: int) -> Tensor:
    return ((places < 0) | (places >= rows)).unsqueeze(-1)


def _usable(op: Any, at: int, usable: Callable[[Tensor], Tensor] = torch.isfinite) -> Callable[..., Any]:
    """`op`, but NaN for a record whose argument in this place torch's own loops cannot take: they end the process.

    Or read what lies outside of a tensor, or go on for hours.
    """

    def compute(*how: Any, **more: Any) -> Any:
        fits = usable(how[at]).all()
        found = op(*how[:at], torch.where(fits, how[at], 0), *how[at + 1 :], **more)
        return pytree.tree_map_only(Tensor, lambda part: torch.where(fits, part, torch.nan), found)

    return compute


def _low_degree(degree: Tensor) -> Tensor:
    return degree <= _MOST_DEGREE


def _truncated(op: Any) -> Callable[..., Tensor]:
    """A quotient of whole numbers: the smallest of all by −1 is a signal of the processor, not an exception."""

    def quotient(a: Tensor, b: Any, *, rounding_mode: str | None = None) -> Tensor:
        kinds = [part.dtype if isinstance(part, Tensor) else torch.tensor(part).dtype for part in (a, b)]
        if rounding_mode != "trunc" or any(kind.is_floating_point for kind in kinds):
            found: Tensor = op(a, b, rounding_mode=rounding_mode)
        elif isinstance(b, Tensor):
            found = op(a, torch.where(b == -1, 1, b), rounding_mode=rounding_mode)
            found = torch.where(b == -1, -found, found)
        else:
            found = -a if b == -1 else op(a, b, rounding_mode=rounding_mode)
        return found

    return quotient


class Raising(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Where a module runs as it is, on a hold-out: what would end the process is an exception instead."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        instead = _INSTEAD.get(op) if op in _QUOTIENTS else None
        name = op._schema.name.removeprefix("aten::")
        at = 0 if name in ("linalg_eig", "linalg_eigvals", "_linalg_eigvals") else _SAMPLED.get(name)
        if at is not None and not args[at].isfinite().all():
            raise FloatingPointError(f"{name} of a number that is not finite")
        if name in _POLYNOMIALS and not _low_degree(torch.as_tensor(args[1])).all():
            raise OverflowError(f"{name} of a degree above {_MOST_DEGREE}")
        return (instead or op)(*args, **(kwargs or {}))


def raising(module: nn.Module) -> AbstractContextManager[object]:
    """`Raising` where the module has a forward of somebody's own; no layer of torch's or ours does what it stops."""
    for part in module.modules():
        if (
            part._forward_hooks
            or part._forward_pre_hooks
            or not type(part).__module__.startswith(("torch.nn.", "gossamer."))
        ):
            return Raising()
    return nullcontext()


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _written(op: Any) -> Callable[..., Tensor]:
    """Memory to which nothing was written holds what was there before, such as other records: zeros in its place."""

    def zeros(*how: Any, **more: Any) -> Tensor:
        return torch.zeros_like(op(*how, **more))

    return zeros


_UNWRITTEN = "empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided"
_SAMPLED = {
    "grid_sampler_2d": 1,
    "grid_sampler_3d": 1,
    "grid_sampler_2d_backward": 2,
    "grid_sampler_3d_backward": 2,
}
_POLYNOMIALS = [name for name in dir(torch.ops.aten) if "_polynomial_" in name and name.startswith("special_")]
_MOST_DEGREE = 1 << 12
_QUOTIENTS = [_overload("div.Tensor_mode"), _overload("div.Scalar_mode")]
_INSTEAD: dict[Any, Callable[..., Any]] = {
    # Records side by side may lie in memory as no view allows.
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
    torch.ops.aten.embedding.default: _rows,
    torch.ops.aten.embedding_dense_backward.default: _rows_backward,
    **{op: _written(op) for name in _UNWRITTEN.split() for op in (_overload(name),)},
    **{op: _usable(op, at) for name, at in _SAMPLED.items() for op in (_overload(name),)},
    torch.ops.aten.linalg_eigvals.default: _usable(torch.ops.aten.linalg_eigvals.default, 0),
    **{op: _usable(op, 1, _low_degree) for name in _POLYNOMIALS for op in (_overload(name),)},
    **{op: _truncated(op) for op in _QUOTIENTS},
}
# A place outside of a record is one in the next for the first two; the others give memory to which nothing was written.
_REFUSED = ["index_fill", "linalg_ldl_solve", "resize", "resize_as", "empty", "empty_quantized"]
_REFUSED += ["as_strided", "as_strided_copy", "as_strided_scatter"]


_MAXIMA = re.compile(r"aten::\w*max_pool\dd(_with_indices)?_backward")  # they write where they are told to

_FIXED_SIZE = [torch.ops.aten.index.Tensor]  # but by a mask, which vmap refuses


def _only_torchs_own(graph: fx.GraphModule, module: str) -> None:
    """An operation that somebody registered is Python that would see records; one that writes could keep them."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        known = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")
        if not known:
            raise refusal("", module, f"the operation {node.target} is not one of torch's own")
        if torch.Tag.dynamic_output_shape in node.target.tags and node.target not in _FIXED_SIZE:
            raise refusal("", module, f"the values of a record decide how many results {node.target} gives")
        if node.target._schema.is_mutable:
            raise refusal("", module, f"the operation {node.target} writes in place")
        if node.target not in _INSTEAD and node.target._schema.name.removeprefix("aten::") in _REFUSED:
            raise refusal("", module, f"the operation {node.target} may read what is another record's")
        if _MAXIMA.fullmatch(node.target._schema.name) and not _of_a_pool(node.args[-1]):
            raise refusal("", module, f"the operation {node.target} may write to what is another record's")


def _of_a_pool(places: Any) -> bool:
    """Are these the places of maxima, as a pool found them?"""
    pool = places.args[0] if isinstance(places, fx.Node) and places.target is operator.getitem else None
    return isinstance(pool, fx.Node) and "max_pool" in str(pool.target)


@contextmanager
def _watched(module: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """The layers that are being called, outermost first; an exception leaves them as they were."""
    inside: list[tuple[str, str]] = []
    hooks: list[Any] = []
    # It prints a traceback of what is refused here.
    torchs_own = logging.getLogger("torch._subclasses.fake_tensor")
    silent, torchs_own.disabled = torchs_own.disabled, True
    for name, layer in module.named_modules():
        if name:
            entry = name, type(layer).__name__
            hooks.append(layer.register_forward_pre_hook(lambda *_, entry=entry: inside.append(entry)))
            hooks.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
    try:
        yield inside
    finally:
        torchs_own.disabled = silent
        for hook in hooks:
            hook.remove()


def _same(graph: fx.GraphModule, again: fx.GraphModule) -> bool:
    """The same operations on the same constants?"""
    if graph.code != again.code:
        return False
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    values = [(getattr(graph, name), getattr(again, name)) for name in names]
    # Left over from an earlier call?
    if any(isinstance(value, FakeTensor) for pair in values for value in pair):
        return False
    return all(torch.equal(one, other) for one, other in values if isinstance(one, Tensor))


FORGETFUL = (
    "it is not the same from one call to the next, for it remembers earlier calls, seeds torch or draws random numbers "
    "that are not torch's; keep nothing between calls"
)
_REASONS = (
    (r"data-dependent|DataDependent|aten\.(_local_scalar_dense|item|nonzero|is_nonzero|equal)|It looks like you're",
     "it decides in Python by the values of a record (`if x.max() > 1`, `.item()`); write it with torch.where"),
    (r"dynamic shape|DynamicOutputShape",
     "the values of a record decide how many results it gives; write it with torch.where"),
    (r"mutate a captured|in-place operation .* would mutate|RegisterFunctionalization",
     "it writes into a buffer, which remembers records; normalise each record by itself, with GroupNorm or LayerNorm"),
    (r"more than 1 value per channel", "it needs several records at a time; use GroupNorm or LayerNorm in its place"),
    (r"Proxy|[Ff]ake ?[Tt]ensor|FunctionalTensor|escaped", FORGETFUL),
    (r"storage|numpy|data pointer", "it leaves torch for numpy or Python; write it with torch's operations"),
)  # fmt: skip


def why(reason: Exception) -> str:
    said = f"{type(reason).__name__}: {reason}"
    for pattern, why in _REASONS:
        if re.search(pattern, said):
            return why
    return f"on a single one it fails with {type(reason).__name__}: {first_line(reason)}"


def refusal(name: str, layer: str, why: str) -> UserError:
    where = f"layer '{name}' ({layer})" if name else f"the module itself ({layer})"
    return UserError(f"model: {where} cannot be computed for one record by itself: {why}.")
