"""Clipped sums of networks of linear layers, ReLU and cross-entropy, in one compiled pass over each node.

Such a network's gradient is so little work that a library's forty small operations cost more than the numbers. Here a
node's lot goes through all layers and back while it is in the cache, `layers.LinearRule`'s closed form gives the norms,
and after they are weighed a second pass adds the sum. A record whose label is no class has no gradient and is left out.
Whatever is unusual (persons, another type or device) is left to `BookKeeping`, which computes the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import threads
from gossamer.kernels.persons import Part
from gossamer.kernels.products import ANY_ORDER, combined_in_double, combined_rows, rows_with_rows
from gossamer.kernels.rounding import fits, norm_of_squares, refuse_infinite, square_norm
from gossamer.kernels.threads import runs_compiled

if TYPE_CHECKING:
    from gossamer.kernels.bookkeeping import BookKeeping

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Layers = Ints
"""A row for each layer: inputs, outputs, where its weight and its bias begin in a node's row; −1: it has none."""

PLAIN_LOSS = {
    "weight": None,
    "size_average": None,
    "ignore_index": -100,
    "reduce": None,
    "label_smoothing": 0.0,
}
CHAIN = re.compile("F*(LR)*LC")  # flatten, linear, ReLU, …, linear, cross-entropy


def layers_of(other: BookKeeping, x: Tensor, y: Tensor) -> Layers | None:
    """The linear layers of a graph that is records → flat → linear, ReLU, … , linear → cross-entropy; else None."""
    frozen = len(other.rules) < sum(isinstance(layer, nn.Linear) for layer in other.original.modules())
    if y.ndim != 2 or other.random or frozen or other.repeated:
        return None
    graph = other.graph
    before, targets = (node for node in graph.graph.nodes if node.op == "placeholder")
    kinds, names = "", []
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        inputs = (before, targets) if node.target is F.cross_entropy else (before,)
        if node.args[: len(inputs)] != inputs or len(before.users) != 1:
            return None  # not a chain from the records to the loss
        kinds += _kind(graph, node, node.args[len(inputs) :])
        names += [str(node.target)] if kinds[-1] == "L" else []
        before = node
    if not CHAIN.fullmatch(kinds) or (x.ndim != 3 and kinds[0] != "F"):
        return None
    offsets = dict(zip(other.owners, other.stack.offsets, strict=True))
    rows, width = [], prod(x.shape[2:])
    for name in names:
        layer, own = graph.get_submodule(name), name.removeprefix("module").removeprefix(".")
        assert isinstance(layer, nn.Linear)
        if layer.in_features != width:
            return None
        rows.append((width, layer.out_features, offsets[own, "weight"], offsets.get((own, "bias"), -1)))
        width = layer.out_features
    return np.array(rows, dtype=np.int64)


def _kind(graph: fx.GraphModule, node: fx.Node, more: tuple[Any, ...]) -> str:
    """A letter of `CHAIN`, or "?"; `more` are the arguments after those that come from the graph."""
    options = dict(node.kwargs)
    if node.op == "call_module" and not more and not options:
        layer = graph.get_submodule(str(node.target))
        whole = type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
        return "F" if whole else {nn.Linear: "L", nn.ReLU: "R"}.get(type(layer), "?")
    if node.target in (torch.relu, F.relu, "relu") and not more and options in ({}, {"inplace": False}):
        return "R"
    if node.target in (torch.flatten, "flatten") and (more, options) in (((1,), {}), ((), {"start_dim": 1})):
        return "F"
    loss = {key: value for key, value in options.items() if PLAIN_LOSS.get(key, key) != value}
    return "C" if node.target is F.cross_entropy and not more and loss == {"reduction": "none"} else "?"


ALONE_BYTES = 1 << 20
SURELY_FINITE = 1e30  # a sum whose terms' norms add up to less cannot overflow on its way
f32, i32 = np.float32, np.int32


def suits(part: Part, bytes_per_record: int) -> bool:
    """Is a part computed here? Persons, other types and devices are not."""
    nodes, lot = part.mask.shape
    types = part.points.dtype == part.x.dtype == torch.float32 and part.y.dtype == torch.int64
    # Nodes are done side by side, so a single large one is the library's, which spreads it over the cores.
    spreads = nodes >= threads.cores() or nodes * lot * bytes_per_record < ALONE_BYTES
    return part.units.each == 1 and types and spreads and runs_compiled(part.points)


def weighted(layers: Layers, part: Part, weigh: Callable[[Tensor], Tensor], target: Tensor) -> tuple[Tensor, bool]:
    """As of `BookKeeping`; and whether the sum is finite for sure, as its weighted norms bound it."""
    nodes, lot = part.mask.shape
    records, labels = part.x.reshape(nodes, lot, -1).contiguous().numpy(), part.y.contiguous().numpy()
    live, counts = _find(part.mask.contiguous().numpy(), labels, int(layers[-1, 1]))
    # Numbers of a record between the two passes: hidden values and output gradients.
    numbers = int(layers[:, 1].sum() + layers[:-1, 1].sum())
    lengths, hidden = np.empty((nodes, lot), f32), np.empty((nodes, lot * numbers), f32)
    points = part.points.detach().contiguous().numpy()
    finite = _measure(points, records, labels, live, counts, layers, hidden, lengths)
    norms = torch.from_numpy(lengths)
    if not finite:
        refuse_infinite(norms)
    shares = part.weighs(weigh)(norms).to(torch.float32).contiguous().numpy()
    into = target if target.is_contiguous() else target.contiguous()
    single = fits(9 + lot // 8, max(part.lot, lot))
    largest = _add_up(records, live, counts, layers, hidden, lengths, shares, into.numpy(), single)
    if into is not target:
        target.copy_(into)
    return norms, largest < SURELY_FINITE


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _find(mask: NDArray[np.bool_], y: Ints, classes: int) -> tuple[Ints, Ints]:
    """The places (m, B) of every node's records with a label, those that are there first; how many are."""
    places, counts = np.empty(mask.shape, np.int64), np.zeros(mask.shape[0], np.int64)
    for i in range(mask.shape[0]):
        for b in range(mask.shape[1]):
            if mask[i, b] and 0 <= y[i, b] < classes:
                places[i, counts[i]] = b
                counts[i] += 1
    return places, counts


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _records(x: Floats, places: Ints, count: int) -> Floats:
    """(count, I): the records that are there, copied only where something else lies between them."""
    if count == 0 or places[count - 1] == count - 1:
        return x[:count]
    copied = np.empty((count, x.shape[1]), np.float32)
    for b in range(count):
        source, own = x[places[b]], copied[b]
        for k in range(own.shape[0]):  # assigning rows would take seconds to compile
            own[k] = source[k]
    return copied


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _measure(
    points: Floats,
    x: Floats,
    y: Ints,
    live: Ints,
    counts: Ints,
    layers: Layers,
    hidden: Floats,
    norms: Floats,
) -> bool:
    """Norms (m, B), none too small; are they finite? And in `hidden`, what the sum needs.

    That is hidden values, then output gradients, layer after layer, a row for each record that is there.
    """
    last, nothing = layers.shape[0] - 1, f32(0)
    for i in range(points.shape[0]):
        count = counts[i]
        for b in range(norms.shape[1]):
            norms[i, b] = f32(0)
        if count == 0:
            continue
        records = _records(x[i], live[i], count)
        squares = np.zeros(count, np.float64)
        values, own, at = records, hidden[i], 0
        for k in range(last + 1):
            _, outputs, weight, bias = layers[k]
            z = own[at : at + count * outputs].reshape(count, outputs)
            _layer(points[i], values, weight, bias, z, k < last)
            values, at = z, at + count * outputs
        _less_label(values, y[i], live[i])
        # `values` are the output gradients of the last layer now, and at ends behind them.
        below = at - count * layers[last, 1]
        for k in range(last, -1, -1):
            inputs, outputs, weight, bias = layers[k]
            if k > 0:
                below -= count * inputs
            a = own[below : below + count * inputs].reshape(count, inputs) if k > 0 else records
            for b in range(count):
                squares[b] += square_norm(values[b]) * (square_norm(a[b]) + (1.0 if bias >= 0 else 0.0))
            if k > 0:
                g = own[at : at + count * inputs].reshape(count, inputs)
                rows = points[i, weight : weight + inputs * outputs].reshape(outputs, inputs)
                combined_rows(np.ascontiguousarray(values.T), rows, g)
                for b in range(count):
                    for j in range(inputs):
                        g[b, j] = f32(0) if a[b, j] <= f32(0) else g[b, j]
                values, at = g, at + count * inputs
        for b in range(count):
            norms[i, live[i, b]] = norm_of_squares(squares[b], last + 1)
            nothing += norms[i, live[i, b]] * f32(0)  # 0, unless one is infinite or no number
    return bool(nothing == f32(0))


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _layer(point: Floats, values: Floats, weight: int, bias: int, out: Floats, rectified: bool) -> None:
    """out = values Wᵀ + b, and its positive part."""
    outputs, inputs = out.shape[1], values.shape[1]
    rows_with_rows(values, point[weight : weight + inputs * outputs].reshape(outputs, inputs), out)
    if bias >= 0:
        added = point[bias : bias + outputs]
        for b in range(out.shape[0]):
            for j in range(outputs):
                out[b, j] += added[j]
    if rectified:
        flat = out.reshape(out.size)
        for j in range(flat.shape[0]):  # what is not a number stays
            flat[j] = f32(0) if flat[j] < f32(0) else flat[j]


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _less_label(z: Floats, y: Ints, places: Ints) -> None:
    """z ← softmax(z) − e_y: the gradient of cross-entropy."""
    for b in range(z.shape[0]):
        top = z[b, 0]
        for j in range(1, z.shape[1]):
            top = max(top, z[b, j])
        for j in range(z.shape[1]):
            z[b, j] -= top
    flat = z.reshape(z.size)
    _exponential(flat)
    for b in range(z.shape[0]):
        total = f32(0)
        for j in range(z.shape[1]):
            total += z[b, j]
        for j in range(z.shape[1]):
            z[b, j] /= total
        z[b, y[places[b]]] -= f32(1)


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"contract", "nsz"}, error_model="numpy")
def _exponential(values: Floats) -> None:
    """e^v in place for v ≤ 0 to 2 units in the last place, never below e⁻⁸⁷; what is not a number stays.

    v = n ln 2 + r with |r| ≤ ½ ln 2, e^r by the Taylor polynomial that is exact to a float32 there.
    """
    for j in range(values.shape[0]):
        v = f32(-87) if values[j] < f32(-87) else values[j]
        n = np.floor(v * f32(1.44269504) + f32(0.5))
        r = (v - n * f32(0.693359375)) + n * f32(2.12194440e-4)
        p = f32(1.9841270e-4)
        p = p * r + f32(1.3888889e-3)
        p = p * r + f32(8.3333333e-3)
        p = p * r + f32(4.1666667e-2)
        p = p * r + f32(1.6666667e-1)
        p = p * r + f32(0.5)
        p = p * r * r + r + f32(1)
        values[j] = p * np.int32((i32(n) + i32(127)) << i32(23)).view(np.float32)


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _add_up(
    x: Floats,
    live: Ints,
    counts: Ints,
    layers: Layers,
    hidden: Floats,
    norms: Floats,
    weights: Floats,
    target: Floats,
    single: bool,
) -> float:
    """Put Σ_b w_b g_b of every node into `target`; the largest Σ_b w_b ‖g_b‖, or ∞ if a factor overflows."""
    last, largest = layers.shape[0] - 1, 0.0
    for i in range(x.shape[0]):
        count = counts[i]
        records, own, at, total = _records(x[i], live[i], count), hidden[i], 0, 0.0
        w = np.empty(count, np.float32)
        for b in range(count):
            w[b] = weights[i, live[i, b]]
            total += np.float64(w[b]) * np.float64(norms[i, live[i, b]])
        for k in range(last):
            at += count * layers[k, 1]
        values = at  # hidden values lie before here, output gradients behind, the last layer's first
        for k in range(last, -1, -1):
            inputs, outputs, weight, bias = layers[k]
            g = own[at : at + count * outputs].reshape(count, outputs)
            at += count * outputs
            nothing = f32(0)
            for b in range(count):
                for j in range(outputs):
                    g[b, j] *= w[b]
                    nothing += g[b, j] * f32(0)  # 0, unless one is infinite or no number
            total += np.float64(nothing)
            a = records
            if k > 0:
                values -= count * inputs
                a = own[values : values + count * inputs].reshape(count, inputs)
            into = target[i, weight : weight + inputs * outputs].reshape(outputs, inputs)
            if single:
                combined_rows(g, a, into)
            else:
                combined_in_double(g, a, into)
            for j in range(outputs if bias >= 0 else 0):
                summed = 0.0
                for b in range(count):
                    summed += np.float64(g[b, j])
                target[i, bias + j] = f32(summed)
        largest = total if not total <= largest else largest
        if not largest < SURELY_FINITE:
            largest = np.inf
    return largest
