"""The list of operations: each one on it keeps records apart on tensors with values, too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.operations import (
    FUNCTIONS,
    LAYERS,
    METHODS,
    Call,
    Constant,
    LotSize,
    Records,
    along,
    pointwise,
    reshaped,
)  # fmt: skip

NEEDS: dict[object, tuple[float, ...]] = {
    F.threshold: (0.1, 20.0),
    F.dropout: (0.0,),
    torch.clamp: (0.7, 1.2),
}


def repr_of(function: object) -> str:
    return str(getattr(function, "__name__", function))


def records(*shape: int) -> Records:
    return Records(tuple(torch.empty(lot, *shape, device="meta") for lot in (1, 3, 5)))


@pytest.mark.parametrize("function", [f for f, rule in FUNCTIONS.items() if rule is pointwise], ids=repr_of)
def test_pointwise_functions_are_so(function: object) -> None:
    """One record alone gives what it gives among others."""
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)) + 0.5
    name, extra = repr_of(function), NEEDS.get(function, ())
    tensors: tuple[Tensor, ...] = (x,)
    if name == "where":
        tensors = (x > 1, x, x + 1)
    elif name in ("and_", "or_"):
        tensors = (x > 1, x > 0.7)
    elif name == "masked_fill":
        tensors, extra = (x, x > 1), (0.0,)
    elif name in ("invert", "logical_not"):
        tensors = (x > 1,)
    elif not extra and not _takes_one(function, x):
        tensors = (x, x + 1)
    whole = function(*tensors, *extra)  # type: ignore[operator]
    for b in range(5):
        alone = function(*(tensor[b : b + 1] for tensor in tensors), *extra)  # type: ignore[operator]
        torch.testing.assert_close(whole[b : b + 1], alone, equal_nan=True)


def _takes_one(function: object, x: Tensor) -> bool:
    try:
        function(x)  # type: ignore[operator]
    except TypeError:
        return False
    return True


def test_broadcasting_that_would_lay_records_against_each_other() -> None:
    assert pointwise(Call((records(4), records(4)), {}))
    assert pointwise(Call((records(4), Constant(torch.zeros(4))), {}))
    assert pointwise(Call((records(4), Constant(torch.zeros(1, 4))), {}))
    assert not pointwise(Call((records(1), records()), {}))
    assert not pointwise(Call((records(4), Constant(torch.zeros(3, 4))), {}))


def test_an_axis_must_be_named_and_not_be_the_lots() -> None:
    rule = along(1)
    assert rule(Call((records(4, 2), 1), {}))
    assert rule(Call((records(4, 2), -1), {}))
    assert rule(Call((records(4, 2),), {"dim": (1, 2)}))
    for axis in (0, -3, None, (0, 1), True):
        assert not rule(Call((records(4, 2), axis), {}))
    assert not rule(Call((records(4, 2),), {}))


def test_the_lots_size_is_a_first_size_only() -> None:
    assert reshaped(Call((records(4), LotSize(), -1), {}))
    assert reshaped(Call((records(4), (LotSize(), 2, 2)), {}))
    assert not reshaped(Call((records(4), 4, LotSize()), {}))


def test_the_lists_hold_no_operation_over_whole_tensors() -> None:
    names = {getattr(f, "__name__", str(f)) for f in FUNCTIONS} | set(METHODS)
    assert not names & {
        "sort",
        "batch_norm",
        "einsum",
        "index_select",
        "T",
        "t",
    }
    assert nn.BatchNorm1d not in LAYERS
