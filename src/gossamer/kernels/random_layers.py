"""Random numbers of a user's network (dropout, added noise), drawn from a noise stream and not by torch.

torch's generator is shared by all records of a lot and may be seeded by the caller: with known numbers, one record more
would shift those of all others, and move the sum by far more than its clip. Here every random operation of a traced
network becomes an input: uniform numbers for each record, from AES under a key that the operating system gave. They are
independent of each other and of who else is in the lot, so that records may be coupled with their numbers, and given
the numbers a record moves the sum by at most its clip.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from gossamer.errors import UserError
from gossamer.kernels.noise import Stream

aten = torch.ops.aten
T = TypeVar("T")
_HALF = 2.0**-25  # half of a uniform number's last digit: keeps 0 and 1 out


@dataclass(frozen=True)
class Numbers:
    """Uniform numbers in [0, 1), each addressed by node, step and the record's place in the node's lot."""

    stream: Stream
    purpose: int
    nodes: NDArray[np.int64]
    step: int

    @classmethod
    def secret(cls, nodes: int) -> Numbers:
        return cls(Stream.system(), 0, np.arange(nodes), 0)

    def draw(self, shapes: Sequence[torch.Size], rows: slice, places: range, like: Tensor) -> list[Tensor]:
        """(m, B, *shape) for each shape, of these rows and places: the same numbers in whatever slices."""
        if not shapes:
            return []
        sizes = [prod(shape) for shape in shapes]
        words = -(-sum(sizes) // 2)  # of 64 bits, a record
        nodes, count = self.nodes[rows], len(places)
        bits = self.stream.uniform_bits_rows(self.purpose, nodes, self.step, count * words, offset=places.start * words)
        halves = np.ascontiguousarray(bits).view(np.uint32).reshape(len(nodes), count, 2 * words)
        uniform = torch.from_numpy((halves >> 8).astype(np.float32) * np.float32(2**-24)).to(like)
        parts = torch.split(uniform[:, :, : sum(sizes)], sizes, 2)
        return [part.reshape(len(nodes), count, *shape) for part, shape in zip(parts, shapes, strict=True)]


def bytes_of(shapes: Sequence[torch.Size]) -> int:
    """What a record's numbers take while they are drawn."""
    return 12 * sum(prod(shape) for shape in shapes)


def global_generators() -> tuple[Any, ...]:
    """The states of torch's, numpy's and Python's generators, to see whether somebody draws from them."""
    return (
        torch.get_rng_state().numpy().tobytes(),
        pickle.dumps(np.random.get_state(legacy=False)),
        random.getstate(),
    )


def undisturbed(work: Callable[[], T]) -> tuple[T, bool]:
    """What `work` gives, and whether nobody drew from the global generators meanwhile.

    Other threads may draw (an event loop does), so it is done again: what draws itself does so every time.
    """
    for _ in range(3):
        before = global_generators()
        result = work()
        if before == global_generators():
            return result, True
    return result, False


def is_random(node: fx.Node) -> bool:
    """Does this operation draw? Attention is said to, and does only where it has dropout."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return given.get("dropout_p", 0.0 if "dropout_p" in names else None) != 0.0


def random_inputs(graph: fx.GraphModule, drawn: Mapping[Any, Callable[..., Any]]) -> list[torch.Size]:
    """Turn the random operations of a graph into inputs behind the others; the shapes that one record needs.

    `drawn`: operation or layer → the same of uniform numbers, which come first. Nodes know a record's shape.
    """
    shapes: list[torch.Size] = []
    nodes = list(graph.graph.nodes)
    last = [node for node in nodes if node.op == "placeholder"][-1]
    for node in nodes:
        layer = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        make = drawn.get(node.target if layer is None else type(layer))
        if make is None or (layer is not None and (not layer.training or layer.p == 0)):
            continue
        if layer is not None:
            node.op, node.args = "call_function", (*node.args, layer.p)
        with graph.graph.inserting_after(last):
            last = graph.graph.placeholder(f"random_{len(shapes)}")
        node.target, node.args = make, (last, *node.args)
        shapes.append(node.meta["record"])
    if shapes:
        graph.recompile()
    return shapes


def with_random_inputs(
    graph: fx.GraphModule, drawn: Mapping[Any, Callable[..., Any]]
) -> tuple[Callable[..., Any], list[torch.Size]]:
    """A trace of one record as a function of its arguments and of a list of random numbers; their shapes."""
    for node in graph.graph.nodes:
        if not is_random(node):
            continue
        if node.target not in drawn or node.kwargs.get("generator") is not None:
            raise UserError(
                f"model: the random operation {node.target} cannot be drawn from the secret stream that privacy needs; "
                "use torch's dropout, bernoulli, rand, randn, randint, randperm, uniform, normal or exponential, and "
                "no generator of your own."
            )
        value = node.meta["val"]
        node.meta["record"] = (value[0] if isinstance(value, tuple | list) else value).shape
    outputs = graph.graph._codegen.pytree_info.out_spec  # type: ignore[attr-defined]
    graph.graph.set_codegen(fx.graph.CodeGen())
    graph.recompile()
    shapes = random_inputs(graph, drawn)

    def call(*given: Any) -> Any:
        *arguments, numbers = given
        # Not `graph(…)`, which prints where a record fails.
        return pytree.tree_unflatten(graph.forward(*pytree.tree_leaves(arguments), *numbers), outputs)

    return call, shapes


def dropout(u: Tensor, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return native_dropout(u, x, p, training)[0]


def native_dropout(u: Tensor, x: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    if train is False:
        return x, torch.ones_like(x, dtype=torch.bool)
    kept = u >= p
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def _bernoulli(u: Tensor, x: Tensor, p: Any = None, **_: Any) -> Tensor:
    return (u < (x if p is None else p)).to(x.dtype)


def _type_of(given: Sequence[Any]) -> torch.dtype:
    """Of the first tensor that the operation was given, if any."""
    return next((one.dtype for one in given if isinstance(one, Tensor)), torch.get_default_dtype())


def _rand(u: Tensor, *given: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return u.to(dtype or _type_of(given))


def _standard(u: Tensor) -> Tensor:
    """Standard normal numbers, none beyond 5.4."""
    found: Tensor = torch.special.ndtri(u.double() + _HALF)
    return found


def _randn(u: Tensor, *given: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return _standard(u).to(dtype or _type_of(given))


def _uniform(u: Tensor, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return (low + (high - low) * u).to(x.dtype)


def _normal(u: Tensor, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return (mean + std * _standard(u)).to(x.dtype)


def _normal_around(u: Tensor, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> Tensor:
    found: Tensor = mean + std * _standard(u)
    return found.to(_type_of((mean, std)))


def _randint(u: Tensor, high: int, *_: Any, low: int = 0, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return (low + (u.double() * (high - low)).floor()).to(dtype or torch.int64)


def _randint_from(u: Tensor, low: int, high: int, *_: Any, **more: Any) -> Tensor:
    return _randint(u, high, low=low, **more)


def _randperm(u: Tensor, *_: Any, **__: Any) -> Tensor:
    return u.argsort()


def _rrelu(u: Tensor, x: Tensor, noise: Tensor, low: float, high: float, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    slopes = torch.where(x <= 0, low + (high - low) * u, 1.0)
    return x * slopes, slopes


def _exponential(u: Tensor, x: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    return (-torch.log(u.double() + _HALF) / rate).to(x.dtype)


DRAWN: dict[Any, Callable[..., Any]] = {
    aten.native_dropout.default: native_dropout,
    aten.bernoulli.default: _bernoulli,
    aten.bernoulli.p: _bernoulli,
    aten.rand.default: _rand,
    aten.randn.default: _randn,
    aten.rand_like.default: _rand,
    aten.randn_like.default: _randn,
    aten.uniform.default: _uniform,
    aten.normal_functional.default: _normal,
    aten.normal.float_float: _normal_around,
    aten.normal.Tensor_float: _normal_around,
    aten.normal.float_Tensor: _normal_around,
    aten.normal.Tensor_Tensor: _normal_around,
    aten.exponential.default: _exponential,
    aten.randint.default: _randint,
    aten.randint.low: _randint_from,
    aten.randperm.default: _randperm,
    aten.rrelu_with_noise_functional.default: _rrelu,
}
