"""Which modules keep the records of a lot apart, decided on their graph and not on a sample of records.

A module is traced symbolically: its Python runs on shapes without data, and what is left is a list of operations. It is
that list which computes on records afterwards, never the module's own Python, so that nothing it decides, remembers or
draws at random can depend on a record. It runs twice, on lots of 3 and 5 records: what is 3 in one list and 5 in the
other is the number of records, and everything else must be the same in both.

Every operation must be one of a list (`operations`), which treat the first axis, that of the records, as so many
separate computations. What each gives is followed over lots of 1, 3 and 5 records: it must have as many entries along
the first axis as there are records, and the same shape behind it. An operation that sums over the lot, moves its axis,
or broadcasts records against each other has another shape in one of the three, and is refused.

What is not on the list is not wrong: it goes the slow way, record by record (`oracle`).
"""

from __future__ import annotations

import builtins
import copy
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from gossamer.kernels.attention import unpacked
from gossamer.kernels.operations import (
    FUNCTIONS,
    LAYERS,
    LOTS,
    METHODS,
    OUT_OF_PLACE,
    REPEATABLE,
    Call,
    Constant,
    LotSize,
    MixingError,
    Records,
    Several,
    Sizes,
    Value,
    mapped,
    of_each,
)
from gossamer.kernels.random_layers import undisturbed

PLAIN = (Tensor, nn.Parameter, nn.Buffer)  # kinds of tensors on which operations are torch's
TRACED = LOTS[1:]


class WithLoss(nn.Module):
    """(records, targets) → one loss each."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self._loss = module, loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self.module(x), y)


def graph_of(module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> fx.GraphModule:
    """loss(module(x), y) as a graph that keeps records apart, on a copy of the module; x and y only show shapes (N, …).

    The layers of the graph stand at their own names behind "module.". Most networks ask for no shape; those that do are
    traced with shapes, which takes parts of torch that are slow to load.
    """
    try:
        return _graph_of(module, loss, x, y, shaped=False)
    except MixingError:
        return _graph_of(module, loss, x, y, shaped=True)


def _graph_of(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, *, shaped: bool
) -> fx.GraphModule:
    if torch.nn.modules.module._has_any_global_hook():  # type: ignore[no-untyped-call]
        raise MixingError("a hook is set on all modules, and it might do anything")
    try:
        root = WithLoss(copied(module), loss)
        unpacked(root)
        trained = [parameter for parameter in root.parameters() if parameter.requires_grad]
        root.requires_grad_(False)
        for parameter in trained:
            parameter.fill_(torch.nan)  # whatever is computed from them past their layer is found out
        # Twice with the same copy: what remembers its first call is another graph in the second.
        values = [*root.parameters(), *root.buffers()]
        shapes = copy.deepcopy(root, {id(value): _blank(value) for value in values})
        (graph, again), quiet = undisturbed(
            lambda: [_Tracer(shapes if shaped else None, x, y, lot).trace(root) for lot in TRACED]
        )
    except Exception as reason:  # the module's own code runs here, and may raise anything
        raise MixingError(f"its forward cannot be traced ({first_line(reason)})") from None
    _name_lot_size(root, graph, again)
    if not quiet:
        raise MixingError("its forward draws random numbers while it is traced")
    _write_nothing_in_place(root, graph)
    for node in reversed(graph.nodes):
        # What nobody reads was traced for a log, or for the module's memory.
        if node.op not in ("placeholder", "output") and not node.users:
            graph.erase_node(node)
    _Follower(root, graph, trained).follow(x, y)
    return fx.GraphModule(root, graph)


def copied(module: nn.Module) -> nn.Module:
    """A copy that shares nothing with the module, whatever the module says how it is copied."""
    copy_of = copy.deepcopy(module)
    if {id(layer) for layer in copy_of.modules()} & {id(layer) for layer in module.modules()}:
        raise TypeError("its copy is the module itself")
    for layer in copy_of.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            layer.sparse = False  # the same gradient, written out
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False  # it would ask for the mask's values
    return copy_of


def _name_lot_size(root: nn.Module, graph: fx.Graph, again: fx.Graph) -> None:
    """Put the number of records where the traces have theirs; else they must be the same, with the same constants."""
    places = {node: k for nodes in (graph.nodes, again.nodes) for k, node in enumerate(nodes)}
    inputs = graph.find_nodes(op="placeholder")
    with graph.inserting_after(inputs[-1]):
        lot = graph.call_method("size", (inputs[0], 0))

    def merged(one: Any, other: Any) -> Any:
        if type(one) is type(other) is int and (one, other) == TRACED:
            return lot
        if isinstance(one, tuple | list) and type(one) is type(other) and len(one) == len(other):
            return type(one)(merged(*pair) for pair in zip(one, other, strict=True))
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            return {key: merged(value, other[key]) for key, value in one.items()}
        if isinstance(one, slice) and isinstance(other, slice):
            return slice(*(merged(getattr(one, k), getattr(other, k)) for k in ("start", "stop", "step")))
        if repr(places.get(one, one)) != repr(places.get(other, other)):
            raise MixingError("its forward is not the same from one call to the next")
        return one

    pairs = [node for node in graph.nodes if node is not lot], list(again.nodes)
    for one, other in zip(*pairs, strict=False):
        if len(pairs[0]) != len(pairs[1]) or one.op != other.op:
            raise MixingError("its forward is not the same from one call to the next")
        if one.op == "get_attr":  # constants have other names in every trace
            values = [_attribute(root, str(node.target)) for node in (one, other)]
            if values[0] is not values[1] and not torch.equal(*values):
                raise MixingError("its forward is not the same from one call to the next")
            continue
        merged(one.target, other.target)
        one.args, one.kwargs = merged(one.args, other.args), merged(one.kwargs, other.kwargs)


def _write_nothing_in_place(root: nn.Module, graph: fx.Graph) -> None:
    """What is written in place could be a record. Where a name's ending says so, nobody knows what else it changes."""
    for layer in root.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False  # type: ignore[assignment]
    for node in graph.nodes:
        if node.target in OUT_OF_PLACE:
            node.target = OUT_OF_PLACE[node.target]
        if node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}
        if node.target == "masked_fill_" and node.args[0].target is torch.zeros_like and len(node.args[0].users) == 1:
            node.target = "masked_fill"
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        marked = name.endswith("_") and not name.endswith("__") and node.target not in FUNCTIONS
        if node.op in ("call_function", "call_method") and (marked or "out" in node.kwargs):
            raise MixingError(f"{_name(node)} writes in place")


def _attribute(root: nn.Module, path: str) -> Any:
    found: Any = root
    for name in path.split("."):
        found = getattr(found, name)
    return found


class _Tracer(fx.Tracer):
    """Stops at the layers it knows, and looks into everything else; on a lot of so many records."""

    def __init__(self, shapes: nn.Module | None, x: Tensor, y: Tensor, lot: int) -> None:
        """`shapes`: the module without values, to find shapes by."""
        super().__init__()
        self._shapes, self.device, self._looking = shapes, x.device, False
        self._inputs = iter([_blank(like.new_empty(lot, *like.shape[1:])) for like in (x, y)])

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        hooks = (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks)
        return type(m) in LAYERS and "forward" not in vars(m) and not any(hooks)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Recurrent layers start from zeros also where that is said; places that all records share are each one's."""
        places = args[0] if type(m) is nn.Embedding and args else None
        constant = isinstance(places, fx.Proxy) and places.node.op == "get_attr"
        if constant or isinstance(places, Tensor):
            inputs = fx.Proxy(next(iter(self.graph.nodes)), self)
            args = (self.create_proxy("call_function", of_each, (places, inputs), {}), *args[1:])
        if isinstance(m, nn.RNNBase) and len(args) == 2 and args[1] is not None:
            states = args[1] if isinstance(args[1], tuple) else (args[1],)
            if not any(isinstance(state, fx.Proxy) or bool(state.any()) for state in states):
                args = args[:1]
        return super().call_module(m, forward, args, kwargs)

    def proxy(self, node: fx.Node) -> Any:
        """Of what has values; sizes and types are what they are."""
        if self._shapes is None:
            return super().proxy(node)
        if self._looking:
            raise TypeError("a blank tensor is computed from a traced one")
        self._looking = True
        try:
            with torch.no_grad():
                node.meta["blank"] = blank = self._blank_of(node)
        except Exception:  # a proxy that knows nothing of its shape
            return fx.Proxy(node, self)
        finally:
            self._looking = False
        if isinstance(blank, Tensor):
            return _ShapedProxy(node, self)
        if not isinstance(blank, tuple):
            return blank
        item, whole = operator.getitem, fx.Proxy(node, self)
        parts = [self.create_proxy("call_function", item, (whole, k), {}) for k in range(len(blank))]
        return blank._make(parts) if hasattr(blank, "_make") else type(blank)(parts)

    def _blank_of(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return next(self._inputs)
        if node.op == "get_attr":
            return _blank(_attribute(self.root, str(node.target)))

        def known(one: fx.Node) -> Any:
            return self._blank_of(one) if one.op == "get_attr" else one.meta["blank"]

        args, kwargs = fx.map_arg((node.args, node.kwargs), known)
        if node.op == "call_module":
            assert self._shapes is not None
            layer = self._shapes.get_submodule(str(node.target))
            return layer.forward(*args, **kwargs)  # a call would be traced
        run: Any = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
        return run(*(args[1:] if node.op == "call_method" else args), **kwargs)


def _blank(like: Tensor) -> Tensor:
    blank = torch.empty_like(like.detach(), device="meta")
    return nn.Parameter(blank, requires_grad=False) if isinstance(like, nn.Parameter) else blank


class _ShapedProxy(fx.Proxy):
    """A traced tensor whose shape and type, but no value, the module may ask for."""

    def __getattr__(self, name: str) -> Any:
        blank = self.node.meta["blank"]
        if name == "device" or name.startswith("new_"):  # what is new is a constant
            return getattr(torch.empty(0, dtype=blank.dtype, device=self.tracer.device), name)  # type: ignore[attr-defined]
        return getattr(blank, name) if name in _SHAPES else super().__getattr__(name)

    def __len__(self) -> int:
        return len(self.node.meta["blank"])

    def __iter__(self) -> Any:
        return iter([operator.getitem(self, k) for k in range(len(self))])


_SHAPES = "dim dtype is_complex is_floating_point is_nested is_sparse ndim numel shape size".split()  # noqa: SIM905


class _Follower:
    """What every node of a graph gives for blank records; only the shapes are looked at."""

    def __init__(self, root: nn.Module, graph: fx.Graph, trained: Sequence[Tensor]) -> None:
        self._root, self._graph, self._trained = root, graph, {id(parameter) for parameter in trained}
        self._known: dict[fx.Node, Value] = {}
        self._called: set[str] = set()

    def follow(self, x: Tensor, y: Tensor) -> None:
        inputs = iter((x, y))
        for node in self._graph.nodes:
            if node.op == "output":
                self._end(self._in(node.args[0]))
            elif node.op == "placeholder":
                like = next(inputs)
                self._known[node] = Records(tuple(like.new_zeros(lot, *like.shape[1:]) for lot in LOTS))
            elif node.op == "get_attr":
                self._known[node] = self._constant(str(node.target))
            else:
                call = Call(self._in(node.args), self._in(node.kwargs))
                self._known[node] = value = self._result(node, call)
                if isinstance(value, Records):
                    node.meta["record"] = value.at[0].shape[1:]

    def _in(self, args: Any) -> Any:
        return mapped(args, lambda a: self._known[a] if isinstance(a, fx.Node) else a)

    def _end(self, value: Any) -> None:
        if not isinstance(value, Records) or value.ndim != 1:
            raise MixingError("the loss is not one number for each record")

    def _constant(self, path: str) -> Constant:
        value = _attribute(self._root, path)
        if id(value) in self._trained:
            raise MixingError(f"it uses the parameter {path.removeprefix('module.')} outside of a layer")
        if isinstance(value, Tensor) and type(value) not in PLAIN:  # its own Python would see records
            raise MixingError(f"{path.removeprefix('module.')} is a tensor of a kind of its own")
        return Constant(value)

    def _result(self, node: fx.Node, call: Call) -> Value:
        name = _name(node)
        plain = _plain(node, call)
        if plain is not None:
            return plain
        if node.op == "call_module":
            layer = self._root.get_submodule(str(node.target))
            trained = any(id(parameter) in self._trained for parameter in layer.parameters())
            if node.target in self._called and trained and type(layer) not in REPEATABLE:
                raise MixingError(f"{name} is called more than once")
            self._called.add(str(node.target))
            allowed = LAYERS.get(type(layer))
            run: Callable[..., Any] = layer
            if isinstance(layer, nn.RNNBase):
                run = partial(states_by_layer, layer)
            fits = len(call.args) == 1 and not call.kwargs and allowed is not None and _fits(allowed, layer, call)
        elif node.op == "call_method":
            rule = METHODS.get(str(node.target))
            run = operator.methodcaller if rule is None else getattr(torch.Tensor, str(node.target))
            fits = _fits(rule, call)
        else:
            rule = FUNCTIONS.get(node.target) if callable(node.target) else None
            run = node.target  # type: ignore[assignment]
            fits = _fits(rule, call)
        if not fits:
            raise MixingError(f"{name} is not known to keep records apart, as it is used")
        return self._records(name, run, call)

    def _records(self, name: str, run: Callable[..., Any], call: Call) -> Value:
        if not any(isinstance(value, Records) for value in call.values):
            raise MixingError(f"{name} has nothing to do with records")
        found = []
        for lot in range(len(LOTS)):
            args, kwargs = call.at(lot)
            tensors = [value.at[lot] for value in call.values if isinstance(value, Records)]
            versions = [tensor._version for tensor in tensors]
            try:
                found.append(run(*args, **kwargs))
            except Exception as reason:
                raise MixingError(f"{name} fails on a lot of {LOTS[lot]} ({first_line(reason)})") from None
            if versions != [tensor._version for tensor in tensors]:
                raise MixingError(f"{name} writes into its input")
        return _apart(name, found)


def _fits(rule: Callable[..., bool] | None, *what: Any) -> bool:
    """A rule that does not know what to do with the arguments does not allow them."""
    try:
        return rule is not None and rule(*what)
    except (AttributeError, IndexError, TypeError, ValueError):
        return False


def _fields(value: Any) -> Sequence[str]:
    """torch's pairs of values and places have names that only their type knows."""
    return tuple(field for field in ("values", "indices") if hasattr(value, field))


def _apart(name: str, found: Sequence[Any]) -> Records | Several:
    if isinstance(found[0], tuple):
        fields = getattr(found[0], "_fields", None) or _fields(found[0])
        parts = tuple(_apart(name, part) for part in zip(*found, strict=True))
        return Several(parts, {field: k for k, field in enumerate(fields)})
    for lot, tensor in zip(LOTS, found, strict=True):
        if (
            not isinstance(tensor, Tensor)
            or tensor.ndim == 0
            or len(tensor) != lot
            or tensor.shape[1:] != found[0].shape[1:]
        ):
            raise MixingError(f"{name} does not give one entry for each record")
    return Records(tuple(found))


def states_by_layer(layer: nn.RNNBase, x: Tensor) -> tuple[Any, ...]:
    """What a recurrent layer gives, with its states as a tensor for each layer: records come first in all of them."""
    out, states = layer(x)
    return out, tuple(map(tuple, states)) if isinstance(states, tuple) else tuple(states)


def _plain(node: fx.Node, call: Call) -> Value | None:
    """Shapes, and parts of what is several: nothing is computed."""
    of, key = (*call.args, None, None)[:2]
    got = node.op == "call_function" and node.target is builtins.getattr
    item = node.op == "call_function" and node.target is operator.getitem
    found: Value | None = None
    if isinstance(of, Records) and got:
        found = _attribute_of(of, key)
    elif isinstance(of, Records) and node.op == "call_method" and node.target == "dim":
        found = Constant(of.ndim)
    elif isinstance(of, Records) and node.op == "call_method" and node.target == "size":
        place = call.argument(1, "dim")
        found = Sizes(of) if place is None else _size(of, place)
    elif isinstance(of, Sizes) and item:
        found = _size(of.of, key)
    elif isinstance(of, Several) and item and isinstance(key, int):
        found = of.parts[key]
    elif isinstance(of, Several) and node.target == "squeeze" and key == 0 and len(of.parts) == 1:
        node.op, node.target, found = "call_function", operator.getitem, of.parts[0]
    elif isinstance(of, Several) and got and key in of.names:
        found = of.parts[of.names[key]]
    return found


def _attribute_of(of: Records, name: Any) -> Value | None:
    if name == "shape":
        return Sizes(of)
    return Constant(getattr(of.at[0], name)) if name in ("ndim", "dtype", "device") else None


def _size(of: Records, place: Any) -> Value | None:
    if isinstance(place, int):
        return LotSize() if place % of.ndim == 0 else Constant(of.at[0].shape[place])
    forwards = isinstance(place, slice) and place.step in (None, 1)  # backwards it would reach the lot's size
    if forwards and isinstance(place.start, int) and place.start > 0:
        return Constant(tuple(of.at[0].shape[place]))
    return None


def _name(node: fx.Node) -> str:
    if node.op == "call_module":
        return f"layer {str(node.target).removeprefix('module.')}"
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"the operation {target}"


def first_line(reason: Exception) -> str:
    return (str(reason).strip().split("\n")[0] or type(reason).__name__)[:160].rstrip(".")
