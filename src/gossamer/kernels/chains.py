"""Which graphs are a chain of linear layers, ReLU between them, under cross-entropy: those that `dense` computes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.bookkeeping import BookKeeping

Layers = NDArray[np.int64]
"""A row for each layer: inputs, outputs, where its weight and its bias begin in a node's row; −1: it has none."""

PLAIN_LOSS = {
    "weight": None,
    "size_average": None,
    "ignore_index": -100,
    "reduce": None,
    "label_smoothing": 0.0,
}


def layers_of(other: BookKeeping, x: Tensor, y: Tensor) -> Layers | None:
    """The linear layers of a graph that is records → flat → linear, ReLU, … , linear → cross-entropy; else None."""
    frozen = len(other.rules) < sum(isinstance(layer, nn.Linear) for layer in other.original.modules())
    if y.ndim != 2 or other.random or frozen:
        return None
    offsets = dict(zip(other.owners, other.stack.offsets, strict=True))
    rows: list[tuple[int, int, int, int]] = []
    width, flat, wants_linear, has_loss = prod(x.shape[2:]), x.ndim == 3, True, False
    for name, kind in _steps(other.graph):
        if has_loss:  # what is behind it makes another loss of it
            return None
        if kind == "flatten" and not rows:
            flat = True
        elif kind == "linear" and wants_linear and flat:
            layer = other.graph.get_submodule(name)
            own = name.removeprefix("module").removeprefix(".")
            assert isinstance(layer, nn.Linear)
            if layer.in_features != width:
                return None
            rows.append((width, layer.out_features, offsets[own, "weight"], offsets.get((own, "bias"), -1)))
            width, wants_linear = layer.out_features, False
        elif kind == "relu" and rows and not wants_linear:
            wants_linear = True
        elif kind == "loss" and rows and not wants_linear:
            has_loss = True
        else:
            return None
    return np.array(rows, dtype=np.int64) if has_loss else None


def _steps(graph: fx.GraphModule) -> Iterator[tuple[str, str]]:
    """(name, what it does) of a graph that is a chain from the records to the loss; "other" where it is none."""
    nodes = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    records, targets = (node for node in graph.graph.nodes if node.op == "placeholder")
    before = records
    for node in nodes:
        given = (before, targets) if node.target is F.cross_entropy else (before,)
        chained = node.args[: len(given)] == given and len(before.users) == 1
        yield str(node.target), _kind(graph, node, len(given)) if chained else "other"
        before = node


def _kind(graph: fx.GraphModule, node: fx.Node, given: int) -> str:
    more = node.args[given:], dict(node.kwargs)
    if node.op == "call_module" and more == ((), {}):
        layer = graph.get_submodule(str(node.target))
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            return "flatten"
        return {nn.Linear: "linear", nn.ReLU: "relu"}.get(type(layer), "other")
    if node.target in (torch.relu, F.relu, "relu") and more in (((), {}), ((), {"inplace": False})):
        return "relu"
    if node.target in (torch.flatten, "flatten") and more in (((1,), {}), ((), {"start_dim": 1})):
        return "flatten"
    loss = {key: value for key, value in more[1].items() if PLAIN_LOSS.get(key, key) != value}
    return (
        "loss"
        if node.target is F.cross_entropy and not more[0] and loss == {"reduction": "none"}
        else "other"
    )
