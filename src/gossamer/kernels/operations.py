"""The operations that treat the records of a lot apart, and what they may be given.

A rule sees an operation with its arguments and says whether records stay apart in it; that the result has one entry for
each record is checked for every operation where graphs are followed (`apart`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

LOTS = (1, 3, 5)  # with a lot of 1, a squeeze that would take the records' axis is seen


class MixingError(Exception):
    """The graph is not known to keep records apart; the message says where."""


@dataclass(frozen=True, eq=False)
class Records:
    """A tensor with an entry for every record, at each of the lots."""

    at: tuple[Tensor, ...]

    @property
    def ndim(self) -> int:
        return self.at[0].ndim


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor, a number or a tuple that is the same whatever the lot holds and however large it is."""

    value: Any


class LotSize:
    """The number of records: allowed as the first size of a shape, nowhere else."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """The shape of a tensor of records."""

    of: Records


@dataclass(frozen=True, eq=False)
class Several:
    """What splits a tensor, gives values with their places, or outputs with states."""

    parts: tuple[Records | Several, ...]
    names: dict[str, int]


Value = Records | Constant | LotSize | Sizes | Several


@dataclass(frozen=True)
class Call:
    """An operation of the graph with what goes into it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """A plain argument by its place or its name."""
        value = self.args[place] if len(self.args) > place else self.kwargs.get(name, default)
        return value.value if isinstance(value, Constant) else value

    @property
    def values(self) -> list[Value]:
        """Everything from the graph, also out of lists."""
        values: list[Value] = []
        mapped((self.args, self.kwargs), lambda a: values.append(a) if isinstance(a, Value) else None)
        return values

    def at(self, lot: int) -> tuple[Any, Any]:
        """The arguments at the lot of that number."""

        def plain(value: Any) -> Any:
            if isinstance(value, Records):
                return value.at[lot]
            if isinstance(value, LotSize):
                return LOTS[lot]
            return value.value if isinstance(value, Constant) else value

        return mapped(self.args, plain), mapped(self.kwargs, plain)


def mapped(value: Any, how: Callable[[Any], Any]) -> Any:
    """Over tuples, lists and dictionaries, but not into our own values."""
    if isinstance(value, Value):
        return how(value)
    if isinstance(value, tuple | list):
        return type(value)(mapped(one, how) for one in value)
    if isinstance(value, dict):
        return {key: mapped(one, how) for key, one in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(one, how) for one in (value.start, value.stop, value.step)))
    return how(value)


Allowed = Callable[[Call], bool]


def _tensors(call: Call) -> tuple[list[Records], list[Any]]:
    """What carries records, and what does not; a lot's size is neither, and may not be computed with."""
    values = call.values
    if any(isinstance(value, LotSize | Sizes | Several) for value in values):
        raise MixingError("the number of records is computed with")
    constants = [value.value for value in values if isinstance(value, Constant)]
    return [value for value in values if isinstance(value, Records)], constants


def pointwise(call: Call) -> bool:
    """Entry by entry: tensors of records align at the first axis, and constants do not reach up to it."""
    records, constants = _tensors(call)
    if not records or any(value.ndim != records[0].ndim for value in records):
        return False
    tensors = [value for value in constants if isinstance(value, Tensor)]
    return all(tensor.ndim < records[0].ndim or len(tensor) == 1 for tensor in tensors)


def of_one(call: Call) -> bool:
    """Of one tensor of records and plain numbers: reshaping, reducing, moving axes. The result's shape decides."""
    records, constants = _tensors(call)
    whole = len(records) == 1 and len(call.args) > 0 and call.args[0] is records[0]
    return whole and not any(isinstance(constant, Tensor) for constant in constants)


def reshaped(call: Call) -> bool:
    """The number of records may be the first size. Entries keep their order, so the records keep theirs."""
    sizes = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], tuple | list) else call.args[1:]
    others = [size for size in sizes[1:] if not isinstance(size, int | Constant)]
    return isinstance(call.args[0], Records) and not others and not call.kwargs


def along(place: int, name: str = "dim", default: Any = None) -> Allowed:
    """Along axes that are given, and of which none is that of the records."""

    def allowed(call: Call) -> bool:
        axes = call.argument(place, name, default)
        axes = axes if isinstance(axes, tuple | list) else (axes,)
        if not axes or not all(type(axis) is int for axis in axes):
            return False
        return of_one(call) and all(axis % call.args[0].ndim != 0 for axis in axes)

    return allowed


def joined(more: int) -> Allowed:
    """Several tensors of records side by side, along another axis; of what has so many axes more than they."""

    def allowed(call: Call) -> bool:
        parts, axis = call.args[0], call.argument(1, "dim", 0)
        whole = isinstance(parts, tuple | list) and all(isinstance(part, Records) for part in parts)
        return whole and isinstance(axis, int) and axis % (parts[0].ndim + more) != 0

    return allowed


def indexed(call: Call) -> bool:
    """x[:, …] with numbers and slices."""
    of, index = call.args
    index = index if isinstance(index, tuple) else (index,)
    plain = all(isinstance(one, int | slice | type(None) | type(...)) for one in index[1:])
    # x[:, 5:len(x)] is empty in every lot of at most five, and longer in larger ones
    plain = plain and not any(isinstance(value, LotSize | Sizes) for value in call.values)
    return isinstance(of, Records) and index[0] == slice(None, None, None) and plain


def multiplied(call: Call) -> bool:
    """Matrices of each record with each other, or with a constant one from the right."""
    left, right = call.args
    if not isinstance(left, Records):
        return False
    if isinstance(right, Records):
        return left.ndim == right.ndim >= 3
    return left.ndim >= 2 and isinstance(right, Constant) and right.value.ndim == 2


def each_loss(call: Call) -> bool:
    """A loss that is not summed over the lot, of outputs and targets."""
    records, _ = _tensors(call)
    return len(records) == 2 and call.kwargs.get("reduction") == "none"


def divided(call: Call) -> bool:
    """Whole numbers cut off towards 0 end the process for the smallest of all: see `oracle`."""
    return pointwise(call) and call.kwargs.get("rounding_mode") != "trunc"


def encoded(call: Call) -> bool:
    """Without a number of classes it would be taken from the largest label of the lot."""
    classes = call.argument(1, "num_classes", -1)
    return of_one(call) and isinstance(classes, int) and classes > 0


def pooled(axes: int) -> Allowed:
    """Over the last axes, which are not that of the records."""
    return lambda call: of_one(call) and call.args[0].ndim > axes


def normed(call: Call) -> bool:
    """Over the last axes that `normalized_shape` names."""
    shape = call.argument(1, "normalized_shape")
    axes = len(shape) if isinstance(shape, tuple | list) else 1
    return isinstance(call.args[0], Records) and call.args[0].ndim > axes and len(_tensors(call)[0]) == 1


def attended(call: Call) -> bool:
    """Attention of each record's queries to its own keys, without dropout, which draws."""
    records, constants = _tensors(call)
    queries, mask = call.argument(0, "query"), call.argument(3, "attn_mask")
    alike = all(value.ndim == queries.ndim >= 3 for value in records) and len(records) >= 3
    shared = mask is None or isinstance(mask, Records) or (isinstance(mask, Tensor) and mask.ndim < queries.ndim)
    return alike and shared and call.argument(4, "dropout_p", 0.0) == 0 and len(constants) <= 1


def of_each(constant: Tensor, records: Tensor) -> Tensor:
    """The same tensor for every record; a first axis of 1 stands for them already."""
    own = constant[0] if constant.ndim > 1 and len(constant) == 1 else constant
    return own.expand(len(records), *own.shape)


def typed(call: Call) -> bool:
    """Another type of number; a tensor of records may show which."""
    return isinstance(call.args[0], Records) and not any(isinstance(v, LotSize | Sizes) for v in call.values)


_POINTWISE = """
    abs add atan clamp clamp_max clamp_min cos div eq erf exp expm1 ge gt le log log1p log2 logical_and logical_not
    logical_or lt masked_fill maximum minimum mul nan_to_num ne neg pow reciprocal relu rsqrt sigmoid sign sin sqrt
    square sub tanh where
"""
_ACTIVATIONS = """
    celu dropout elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu sigmoid
    silu softplus softshrink softsign tanh tanhshrink threshold
"""
_OPERATORS = "add and_ eq ge gt invert le lt mul ne neg or_ pow sub truediv"
_ALONG_AN_AXIS = "amax amin argmax argmin cumsum log_softmax logsumexp max mean min prod softmax std sum var"
_MOVED = "clone contiguous detach flatten movedim permute repeat squeeze swapaxes transpose unflatten unsqueeze"
_TYPES = "bool double float int long to type_as"
_POOLS = "adaptive_avg_pool{}d adaptive_max_pool{}d avg_pool{}d max_pool{}d"
_LOSSES = "binary_cross_entropy binary_cross_entropy_with_logits huber_loss l1_loss mse_loss smooth_l1_loss"


def _of(place: Any, names: str, rule: Allowed) -> dict[Any, Allowed]:
    """The functions of these names, as far as a module or class has them."""
    return {getattr(place, name): rule for name in names.split() if hasattr(place, name)}


METHODS: dict[str, Allowed] = {
    **dict.fromkeys((name for name in _POINTWISE.split() if hasattr(Tensor, name)), pointwise),
    **dict.fromkeys(_ALONG_AN_AXIS.split(), along(1)),
    **dict.fromkeys(_MOVED.split(), of_one),
    **dict.fromkeys(_TYPES.split(), typed),
    **dict.fromkeys(("view", "reshape", "expand"), reshaped),
    **dict.fromkeys(("chunk", "split"), along(2, default=0)),
    **dict.fromkeys(("bmm", "matmul"), multiplied),
    "norm": along(2),
    "div": divided,
    "flip": along(1, "dims"),
    "roll": along(2, "dims"),
}

FUNCTIONS: dict[Any, Allowed] = {
    **_of(torch, _POINTWISE, pointwise),
    **_of(F, _ACTIVATIONS, pointwise),
    **_of(operator, _OPERATORS, pointwise),
    **_of(torch, _ALONG_AN_AXIS, along(1)),
    **_of(torch, _MOVED, of_one),
    **_of(F, "softmax log_softmax", along(1)),
    **_of(torch, "chunk split", along(2, default=0)),
    **_of(torch, "bmm matmul", multiplied),
    **_of(F, _POOLS.format(1, 1, 1, 1), pooled(1)),
    **_of(F, _POOLS.format(2, 2, 2, 2), pooled(2)),
    **_of(torch, "max_pool1d", pooled(1)),
    **_of(torch, "max_pool2d", pooled(2)),
    **_of(F, "cross_entropy nll_loss", each_loss),
    **_of(F, _LOSSES, lambda call: each_loss(call) and pointwise(call)),
    of_each: lambda call: isinstance(call.args[0], Constant) and isinstance(call.args[1], Records),
    torch.div: divided,
    torch.zeros_like: of_one,
    torch.norm: along(2),
    torch.flip: along(1, "dims"),
    torch.roll: along(2, "dims"),
    torch.linalg.vector_norm: along(2),
    torch.reshape: reshaped,
    torch.cat: joined(0),
    torch.stack: joined(1),
    operator.matmul: multiplied,
    operator.getitem: indexed,
    F.normalize: along(2, default=1),
    F.glu: along(1, default=-1),
    F.layer_norm: normed,
    F.rms_norm: normed,
    F.scaled_dot_product_attention: attended,
    F.group_norm: pooled(1),
    F.one_hot: encoded,
}

OUT_OF_PLACE: dict[Any, Any] = {
    getattr(operator, f"i{name}"): getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow")
}


def _at_least(axes: int) -> Callable[[nn.Module, Call], bool]:
    return lambda layer, call: isinstance(call.args[0], Records) and call.args[0].ndim >= axes


def _exactly(axes: int) -> Callable[[nn.Module, Call], bool]:
    """Convolutions take a tensor of one axis less for a single record, and its first axis for channels."""
    return lambda layer, call: isinstance(call.args[0], Records) and call.args[0].ndim == axes


def _layer_norm(layer: Any, call: Call) -> bool:
    return isinstance(call.args[0], Records) and call.args[0].ndim > len(layer.normalized_shape)


def _along_its_axis(layer: Any, call: Call) -> bool:
    """Without an axis, softmax takes the first of some tensors."""
    return type(layer.dim) is int and isinstance(call.args[0], Records) and layer.dim % call.args[0].ndim != 0


def _recurrent(layer: Any, call: Call) -> bool:
    """From a state of zeros."""
    drops = layer.dropout > 0 and layer.training and layer.num_layers > 1
    return layer.batch_first and not drops and layer.proj_size == 0 and _exactly(3)(layer, call)


_WITHOUT_AXES = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid,
    nn.Tanh, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Tanhshrink,
    nn.Softshrink, nn.Hardshrink, nn.Threshold, nn.Dropout, nn.Flatten, nn.Unflatten,
)  # fmt: skip

REPEATABLE = nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm  # what a second call reads are more positions
LAYERS: dict[type[nn.Module], Callable[[Any, Call], bool]] = {
    **dict.fromkeys(_WITHOUT_AXES, _at_least(1)),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.GLU), _along_its_axis),
    **dict.fromkeys((nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d), _at_least(2)),
    **dict.fromkeys((nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d), _at_least(3)),
    nn.Linear: _at_least(2),
    nn.Conv1d: _exactly(3),
    nn.Conv2d: _exactly(4),
    nn.Embedding: _at_least(1),
    nn.GroupNorm: _at_least(2),
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
    nn.RNN: _recurrent,
}
