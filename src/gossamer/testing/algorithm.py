"""`check_algorithm`: does an update rule keep what the rest relies on?

Privacy, processes, checkpoints and plans all rest on an algorithm that sees `grad` and `mix` and nothing else, and that
says the truth about how often it draws and what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from gossamer.algorithms.base import Algorithm, Exponential
from gossamer.algorithms.wrappers import mixes_of
from gossamer.errors import UserError
from gossamer.methods.base import bytes_per_message, fitting
from gossamer.runtime.group import split
from gossamer.runtime.loop import Exchange, run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.testing.blocks import in_blocks
from gossamer.testing.quadratics import Array, D, Quadratic, minimum, problem, topology, train
from gossamer.topology.schedule import Topology

# (W, a, b, x0, lr, rounds) → the nodes' models: W (n, n) the mixing weights, f_i(x) = ½ a_i ‖x − b_i‖².
Reference = Callable[[Array, Array, Array, Array, float, int], Array]
WEIGHTS = ("column", "doubly", "adjacency")
NODES, ROUNDS = 7, 6


def check_algorithm(
    rule: type[Any],
    *,
    options: Mapping[str, Any] | None = None,
    reference: Reference | None = None,
    lr: float = 0.1,
    rounds: int = 300,
) -> None:
    """Raise an AssertionError, with what is to be mended, unless `rule` can be used as a method.

    `options` are its own fields. `reference(W, a, b, x0, lr, rounds)` is the same method written node by node, for
    nodes with f_i(x) = ½ a_i ‖x − b_i‖² and mixing weights W; the nodes' models are compared with what it returns.
    Without noise, and with step size `lr`, nodes that are alike must come to their minimum within `rounds`, and nodes
    that differ near that of their sum.

    >>> from gossamer.algorithms.dsgd import DSGD
    >>> from gossamer.testing import check_algorithm
    >>> check_algorithm(DSGD)
    """
    name = rule.__name__

    def make() -> Any:
        return _made(rule, lr, rounds, options or {})

    for check in (_declares, _keeps_its_inputs, _sends_what_is_planned, _is_deterministic, _survives_a_checkpoint,
                  _computes_node_by_node):  # fmt: skip
        check(name, make)
    _converges(name, make, rounds)
    if reference is not None:
        _equals(name, make, reference, lr)


def _made(rule: type[Any], lr: float, rounds: int, options: Mapping[str, Any]) -> Any:
    if not is_dataclass(rule):
        raise AssertionError(
            f"{rule.__name__} is no dataclass; write @dataclass(frozen=True, kw_only=True) above it."
        )
    given = {"lr": Exponential(lr), "seed": 0, "rounds": rounds}
    own = {field.name for field in fields(rule) if field.init}
    return rule(**{**{key: value for key, value in given.items() if key in own}, **options})


class _Grad:
    """Gradients, counted, and nothing else: whoever asks for more learns that there is no more."""

    def __init__(self, name: str, a: Array, b: Array):
        self._name, self._of, self._shape, self.calls = name, Quadratic(a, b), (len(a), D), 0

    def __call__(self, points: Tensor) -> Tensor:
        if tuple(points.shape) != self._shape:
            raise AssertionError(
                f"{self._name} asks for gradients at points of shape {tuple(points.shape)}; every hosted node has one "
                f"point, here {self._shape}."
            )
        self.calls += 1
        return self._of(points)

    def __getattr__(self, asked: str) -> Any:
        if asked == "draws":  # which the loop may ask for
            raise AttributeError(asked)
        raise AssertionError(
            f"{self._name} asks grad for {asked!r}; an algorithm sees the private gradients and nothing behind them."
        )


def _graph(algorithm: Algorithm) -> Topology:
    return topology(algorithm, NODES, irregular=True)


def _start() -> Tensor:
    return torch.from_numpy(problem(NODES, seed=5)[2]).float()


def _after(name: str, algorithm: Any, state: Any, *, start: int = 0, rounds: int = ROUNDS) -> Any:
    a, b, _ = problem(NODES, seed=5)
    return run(
        algorithm, state, _Grad(name, a, b), SimulatedExchange(_graph(algorithm)), rounds=rounds, start=start
    )


def _is_state(name: str, state: Any, nodes: int) -> None:
    if not (isinstance(state, tuple) and hasattr(state, "_asdict")):
        raise AssertionError(
            f"{name}'s state is a {type(state).__name__}; make it a NamedTuple of tensors, so that checkpoints and "
            "processes can carry it."
        )
    for key, value in state._asdict().items():
        if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != nodes:
            found = (
                f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            )
            raise AssertionError(
                f"{name}'s state has {key}, {found}; all of it must be tensors whose first axis is the {nodes} nodes "
                "hosted here."
            )


def _declares(name: str, make: Callable[[], Any]) -> None:
    """Weights, draws, the shape of its state and model."""
    algorithm, x0 = make(), _start()
    if getattr(algorithm, "weights", None) not in WEIGHTS:
        raise AssertionError(f"{name}.weights must say which mixing it needs: {', '.join(WEIGHTS)}.")
    draws = getattr(algorithm, "draws", None)
    if not isinstance(draws, int) or draws < 1:
        raise AssertionError(f"{name}.draws = {draws!r} must be how often a round calls grad, 1 or more.")
    state = algorithm.init(x0)
    _is_state(name, state, NODES)
    if not torch.allclose(algorithm.model(state), x0):
        raise AssertionError(
            f"{name}.model(init(x0)) is not x0; before the first round the model is where it starts."
        )
    a, b, _ = problem(NODES, seed=5)
    grad, exchange, mixed = _Grad(name, a, b), SimulatedExchange(_graph(algorithm)), 0

    def mix(*tensors: Tensor) -> Any:
        nonlocal mixed
        mixed += 1
        if any(not isinstance(tensor, Tensor) or len(tensor) != NODES for tensor in tensors):
            raise AssertionError(
                f"{name} gives mix something without a row for each of the {NODES} hosted nodes."
            )
        return exchange(mixed - 1, *tensors)

    for t in range(1, ROUNDS + 1):
        after = algorithm.step(state, grad, mix, t - 1)
        if grad.calls != t * draws:
            raise AssertionError(
                f"{name}.draws = {draws}, but round {t - 1} called grad {grad.calls - (t - 1) * draws} times; the "
                "budget pays for what is declared, so both must be the same in every round."
            )
        if mixed != t * (declared := mixes_of(algorithm)):
            raise AssertionError(
                f"{name} called mix {mixed - (t - 1) * declared} times in round {t - 1}; so many graphs go by, and it "
                f"must have a property mixes that says so (now {declared})."
            )
        if type(after) is not type(state):
            raise AssertionError(
                f"{name}.step returns a {type(after).__name__} where init gave a {type(state).__name__}."
            )
        _is_state(name, after, NODES)
        for key, value in state._asdict().items():
            new = getattr(after, key)
            if new.shape != value.shape or new.dtype != value.dtype:
                raise AssertionError(
                    f"{name}.step changes {key} from {tuple(value.shape)} {value.dtype} to {tuple(new.shape)} "
                    f"{new.dtype}; a state keeps its shapes and types."
                )
        state = after
    model = algorithm.model(state)
    if model.shape != x0.shape:
        raise AssertionError(
            f"{name}.model gives {tuple(model.shape)} where the nodes' models are {tuple(x0.shape)}."
        )


def _keeps_its_inputs(name: str, make: Callable[[], Any]) -> None:
    algorithm, x0 = make(), _start()
    kept = x0.clone()
    state = algorithm.init(x0)
    before = {key: value.clone() for key, value in state._asdict().items()}
    _after(name, algorithm, state, rounds=2)
    algorithm.model(state)
    changed = [key for key, value in state._asdict().items() if not torch.equal(value, before[key])]
    if not torch.equal(x0, kept):
        changed.insert(0, "x0")
    if changed:
        raise AssertionError(
            f"{name} writes into {', '.join(changed)}, which it was given; make new tensors, since a checkpoint may "
            "still hold the old ones."
        )


def _sends_what_is_planned(name: str, make: Callable[[], Any]) -> None:
    """A plan takes one step on zeros to count what is sent."""
    algorithm = make()
    try:
        planned = bytes_per_message(algorithm, D)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"{name}.step fails on a node whose numbers are all zero ({type(error).__name__}), by which a plan counts "
            "its messages; it must take any numbers."
        ) from error
    a, b, _ = problem(NODES, seed=5)
    exchange = SimulatedExchange(graph := _graph(algorithm))
    run(algorithm, algorithm.init(_start()), _Grad(name, a, b), exchange, rounds=ROUNDS)
    links = sum(int(graph.out_degree(k).sum()) for k in range(ROUNDS * mixes_of(algorithm))) / mixes_of(
        algorithm
    )
    if exchange.bytes_sent != planned * links:
        raise AssertionError(
            f"{name} sends {exchange.bytes_sent / links:g} bytes over a link in a round where round 1 sent {planned}; "
            "a message must be as long in every round."
        )


def _is_deterministic(name: str, make: Callable[[], Any]) -> None:
    algorithm = make()
    found = []
    with torch.random.fork_rng(devices=[]):
        for seed, one in ((1, algorithm), (2, algorithm), (2, make())):
            torch.manual_seed(seed)
            np.random.seed(seed)  # what a user's code may draw from
            found.append(one.model(_after(name, one, one.init(_start()))))
    if not all(torch.equal(found[0], other) for other in found[1:]):
        raise AssertionError(
            f"{name} gives other numbers the second time; take randomness from a generator made of its field seed and "
            "of t, and keep everything that changes in the state, not in the object."
        )


def _survives_a_checkpoint(name: str, make: Callable[[], Any]) -> None:
    """Stopped half-way, written, read into a new object: the same end."""
    algorithm = make()
    whole = _after(name, algorithm, algorithm.init(_start()))
    first = make()
    half = _after(name, first, first.init(_start()), rounds=ROUNDS // 2)
    try:
        written = load(save({key: value.contiguous() for key, value in half._asdict().items()}))
    except RuntimeError as error:
        raise AssertionError(f"{name}'s state cannot be written: {error}") from error
    again = make()
    fresh = again.init(_start())
    try:
        state = type(fresh)(**{key: fitting(key, value, written) for key, value in fresh._asdict().items()})
    except UserError as error:
        raise AssertionError(f"{name}'s state does not fit a new start of the same run: {error}") from error
    resumed = _after(name, again, state, start=ROUNDS // 2)
    if not torch.equal(again.model(resumed), algorithm.model(whole)):
        raise AssertionError(
            f"{name} goes on differently from a checkpoint; all that later rounds need must be in the state that "
            "init and step return."
        )


def _computes_node_by_node(name: str, make: Callable[[], Any]) -> None:
    """What a block of nodes computes must not depend on which others are hosted with it."""
    algorithm = make()
    a, b, _ = problem(NODES, seed=5)
    whole = algorithm.model(_after(name, algorithm, algorithm.init(_start())))

    def work(nodes: range, exchange: Exchange) -> Tensor:
        own, here = make(), slice(nodes.start, nodes.stop)
        state = own.init(_start()[here])
        model: Tensor = own.model(run(own, state, _Grad(name, a[here], b[here]), exchange, rounds=ROUNDS))
        return model

    for sizes in ([3, 4], [1, 5, 1]):
        try:
            apart = torch.cat(in_blocks(work, _graph(algorithm), split(NODES, len(sizes), sizes)))
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"{name} fails where the nodes are spread over processes in blocks of {sizes} "
                f"({type(error).__name__}); every block must mix the same tensors equally often."
            ) from error
        if not torch.allclose(apart, whole, rtol=1e-5, atol=1e-6):
            raise AssertionError(
                f"{name} gives other numbers where the nodes are spread over processes in blocks of {sizes}; nothing "
                "may be computed over the first axis (a mean, a maximum, a norm over all nodes) but by mix."
            )


def _converges(name: str, make: Callable[[], Any], rounds: int) -> None:
    algorithm = make()
    a, b, x0 = problem(NODES, seed=3)
    graph = _graph(algorithm)
    same_a, same_b = np.full(NODES, 1.3), np.tile(b[0], (NODES, 1))
    end = algorithm.model(train(algorithm, graph, same_a, same_b, x0, rounds)).double().numpy()
    left = np.abs(end - same_b).max() / np.abs(x0 - same_b).max()
    if not left < 0.01:  # nan too
        raise AssertionError(
            f"{name} keeps {left:.0%} of the way to the minimum of a quadratic after {rounds} rounds without noise, "
            "all nodes alike; use another lr= or rounds=, or look at its step and at weights (column weights keep "
            "sums, so models must be divided by the mixed ones)."
        )
    best = minimum(a, b)
    end = algorithm.model(train(algorithm, graph, a, b, x0, rounds)).double().numpy()
    left, alone = np.abs(end - best).max(), np.abs(b - best).max()
    if not left < 0.5 * alone:
        raise AssertionError(
            f"{name}: nodes with different records end {left / alone:.0%} as far from the minimum of their sum as each "
            "would by itself; it must mix what it computes, or needs a smaller lr."
        )


def _equals(name: str, make: Callable[[], Any], reference: Reference, lr: float) -> None:
    for irregular in (False, True):
        algorithm = make()
        a, b, x0 = problem(NODES, seed=5)
        graph = topology(algorithm, NODES, irregular=irregular, static=True)
        found = algorithm.model(train(algorithm, graph, a, b, x0, 15)).double().numpy()
        expected = np.asarray(reference(graph.weights(0).toarray(), a, b, x0, lr, 15))
        off = np.abs(found - expected) - 1e-4 * np.abs(expected)
        if not off.max() < 1e-5:
            node, coordinate = np.unravel_index(int(np.argmax(off)), off.shape)
            raise AssertionError(
                f"{name} is not its reference: after 15 rounds node {node} has {found[node, coordinate]:.6g} in "
                f"coordinate {coordinate} where the reference has {expected[node, coordinate]:.6g}."
            )
