"""`check_algorithm`: does an update rule keep what the rest relies on?

Privacy, processes, checkpoints and plans all rest on an algorithm that sees `grad` and `mix` and nothing else, and that
says the truth about how often it draws and what it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.wrappers import mixes_of
from gossamer.errors import UserError
from gossamer.methods.base import bytes_per_message, fitting
from gossamer.runtime.group import SimulatedExchange, split
from gossamer.runtime.loop import Exchange, run
from gossamer.testing import quadratics
from gossamer.testing.quadratics import Array, D, Quadratic, in_blocks, problem, require, topology

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
    """Raise an AssertionError, with what is to be fixed, unless `rule` can be used as a method.

    `options` are its own fields. `reference(W, a, b, x0, lr, rounds)` is the same method written node by node, for
    nodes with f_i(x) = ½ a_i ‖x − b_i‖² and mixing weights W; the nodes' models are compared with what it returns.
    Without noise, and with step size `lr`, nodes that are alike must come to their minimum within `rounds`, and nodes
    that differ near that of their sum.

    >>> from gossamer.algorithms.dsgd import DSGD
    >>> from gossamer.testing import check_algorithm
    >>> check_algorithm(DSGD)
    """
    decorator = "@dataclass(frozen=True, kw_only=True)"
    require(is_dataclass(rule), f"{rule.__name__} is no dataclass; write {decorator} above it.")
    given = {"lr": Exponential(lr), "seed": 0, "rounds": rounds}
    own = {field.name: given[field.name] for field in fields(rule) if field.init and field.name in given}
    checks = _Checks(rule.__name__, lambda: rule(**{**own, **(options or {})}))
    checks.declarations()
    checks.inputs_unchanged()
    checks.messages_as_planned()
    checks.determinism()
    checks.checkpoint()
    checks.blocks()
    checks.convergence(rounds)
    if reference is not None:
        checks.equality(reference, lr)


class _Grad:
    """Gradients, counted, and nothing else: asking for more is an error."""

    def __init__(self, name: str, a: Array, b: Array):
        self._name, self._of, self._shape, self.calls = name, Quadratic(a, b), (len(a), D), 0

    def __call__(self, points: Tensor) -> Tensor:
        shape, due = tuple(points.shape), f"every hosted node has one point, here {self._shape}"
        require(shape == self._shape, f"{self._name} asks for gradients at points of shape {shape}; {due}.")
        self.calls += 1
        return self._of(points)

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "draws":  # which the loop may ask for
            raise AttributeError(attribute)
        sees = "an algorithm sees the private gradients and nothing behind them"
        raise AssertionError(f"{self._name} asks grad for {attribute!r}; {sees}.")


class _Checks:
    """The checks of one rule on one problem; every failure is a sentence that begins with the rule's name."""

    def __init__(self, name: str, make: Callable[[], Any]):
        self._name, self._make, self._algorithm = name, make, make()
        self._a, self._b, x0 = problem(NODES, seed=5)
        self._x0 = torch.from_numpy(x0).float()

    def _require(self, holds: Any, failure: str, remedy: str = "") -> None:
        require(holds, f"{self._name}{failure}{'; ' * bool(remedy)}{remedy}.")

    @cached_property
    def _graph(self) -> Any:  # not before its weights are checked
        return topology(self._algorithm, NODES, irregular=True)

    def _grad(self) -> _Grad:
        return _Grad(self._name, self._a, self._b)

    def _after(self, algorithm: Any, state: Any, *, start: int = 0, rounds: int = ROUNDS) -> Any:
        return run(algorithm, state, self._grad(), SimulatedExchange(self._graph), rounds=rounds, start=start)

    def _model(self, algorithm: Any) -> Tensor:
        model: Tensor = algorithm.model(self._after(algorithm, algorithm.init(self._x0)))
        return model

    def _check_state(self, state: Any) -> None:
        named = isinstance(state, tuple) and hasattr(state, "_asdict")
        remedy = "make it a NamedTuple of tensors, so that checkpoints and processes can carry it"
        self._require(named, f"'s state is a {type(state).__name__}", remedy)
        for key, value in state._asdict().items():
            is_tensor = isinstance(value, Tensor)
            kind = f"of shape {tuple(value.shape)}" if is_tensor else f"a {type(value).__name__}"
            due = f"all of it must be tensors whose first axis is the {NODES} nodes hosted here"
            fits = is_tensor and value.ndim > 0 and len(value) == NODES
            self._require(fits, f"'s state has {key}, {kind}", due)

    def declarations(self) -> None:
        """Weights, draws, the shape of its state and model."""
        algorithm, draws = self._algorithm, getattr(self._algorithm, "draws", None)
        known = getattr(algorithm, "weights", None) in WEIGHTS
        self._require(known, f".weights must say which mixing it needs: {', '.join(WEIGHTS)}")
        counted = isinstance(draws, int) and draws >= 1
        self._require(counted, f".draws = {draws!r} must be how often a round calls grad, 1 or more")
        state = algorithm.init(self._x0)
        self._check_state(state)
        at_start = torch.allclose(algorithm.model(state), self._x0)
        self._require(at_start, ".model(init(x0)) is not x0", "before round 1 the model is where it starts")
        grad, exchange, mixed = self._grad(), SimulatedExchange(self._graph), 0

        def mix(*tensors: Tensor) -> Any:
            nonlocal mixed
            mixed += 1
            rows = all(isinstance(tensor, Tensor) and len(tensor) == NODES for tensor in tensors)
            self._require(rows, f" gives mix something without a row for each of the {NODES} hosted nodes")
            return exchange(mixed - 1, *tensors)

        for t in range(ROUNDS):
            calls, mixes, declared = grad.calls, mixed, mixes_of(algorithm)
            after = algorithm.step(state, grad, mix, t)
            calls, mixes = grad.calls - calls, mixed - mixes
            what = f".draws = {draws}, but round {t} called grad {calls} times"
            remedy = "the budget pays for what is declared, so both must be the same in every round"
            self._require(calls == draws, what, remedy)
            remedy = f"so many graphs go by, and it must have a property mixes that says so (now {declared})"
            self._require(mixes == declared, f" called mix {mixes} times in round {t}", remedy)
            kinds = f".step returns a {type(after).__name__} where init gave a {type(state).__name__}"
            self._require(type(after) is type(state), kinds)
            self._check_state(after)
            for key, old, new in zip(state._fields, state, after, strict=True):
                was, now = (f"{tuple(value.shape)} {value.dtype}" for value in (old, new))
                changes = f".step changes {key} from {was} to {now}"
                self._require(was == now, changes, "a state keeps its shapes and types")
            state = after
        shape, expected = tuple(algorithm.model(state).shape), tuple(self._x0.shape)
        self._require(shape == expected, f".model gives {shape} where the nodes' models are {expected}")

    def inputs_unchanged(self) -> None:
        x0 = self._x0.clone()
        state = self._algorithm.init(x0)
        inputs = {"x0": x0, **state._asdict()}
        before = {key: value.clone() for key, value in inputs.items()}
        before["x0"] = self._x0
        self._after(self._algorithm, state, rounds=2)
        self._algorithm.model(state)
        changed = ", ".join(key for key, value in inputs.items() if not torch.equal(value, before[key]))
        remedy = "make new tensors, since a checkpoint may still hold the old ones"
        self._require(not changed, f" writes into {changed}, which it was given", remedy)

    def messages_as_planned(self) -> None:
        """A plan takes one step on zeros to count what is sent."""
        algorithm, graph = self._algorithm, self._graph
        try:
            planned = bytes_per_message(algorithm, D)
        except AssertionError:
            raise
        except Exception as error:
            what = f"{self._name}.step fails on a node whose numbers are all zero ({type(error).__name__})"
            remedy = "a plan counts messages on such a node, so it must take any numbers"
            raise AssertionError(f"{what}; {remedy}.") from error
        exchange, mixes = SimulatedExchange(graph), mixes_of(algorithm)
        run(algorithm, algorithm.init(self._x0), self._grad(), exchange, rounds=ROUNDS)
        links = sum(int(graph.out_degree(k).sum()) for k in range(ROUNDS * mixes)) / mixes
        what = f" sends {exchange.bytes_sent / links:g} bytes over a link in a round where round 1 sent {planned}"
        as_planned = exchange.bytes_sent == planned * links
        self._require(as_planned, what, "a message must be as long in every round")

    def determinism(self) -> None:
        models = []
        with torch.random.fork_rng(devices=[]):
            for seed, one in ((1, self._algorithm), (2, self._algorithm), (2, self._make())):
                torch.manual_seed(seed)
                np.random.seed(seed)  # what a user's code may draw from
                models.append(self._model(one))
        remedy = "take randomness from a generator made of its field seed and of t, and keep what changes in the state"
        same = all(torch.equal(models[0], other) for other in models[1:])
        self._require(same, " gives other numbers the second time", remedy)

    def checkpoint(self) -> None:
        """Stopped half-way, written, read into a new object: the same end."""
        first, again = self._make(), self._make()
        half = self._after(first, first.init(self._x0), rounds=ROUNDS // 2)
        fresh = again.init(self._x0)
        try:
            written = load(save({key: value.contiguous() for key, value in half._asdict().items()}))
            fresh_items = fresh._asdict().items()
            state = type(fresh)(**{key: fitting(key, value, written) for key, value in fresh_items})
        except (RuntimeError, UserError) as error:
            raise AssertionError(f"{self._name}'s state cannot be written and read again: {error}") from error
        resumed = again.model(self._after(again, state, start=ROUNDS // 2))
        remedy = "all that later rounds need must be in the state that init and step return"
        same = torch.equal(resumed, self._model(self._make()))
        self._require(same, " continues differently from a checkpoint", remedy)

    def blocks(self) -> None:
        """Check that a block of nodes computes the same whichever others are hosted with it."""
        whole = self._model(self._make())

        def work(nodes: range, exchange: Exchange) -> Tensor:
            own, here = self._make(), slice(nodes.start, nodes.stop)
            grad = _Grad(self._name, self._a[here], self._b[here])
            model: Tensor = own.model(run(own, own.init(self._x0[here]), grad, exchange, rounds=ROUNDS))
            return model

        for sizes in ([3, 4], [1, 5, 1]):
            where = f"where the nodes are spread over processes in blocks of {sizes}"
            try:
                apart = torch.cat(in_blocks(work, self._graph, split(NODES, len(sizes), sizes)))
            except AssertionError:
                raise
            except Exception as error:
                what = f"{self._name} fails {where} ({type(error).__name__}); every block must"
                raise AssertionError(f"{what} mix the same tensors equally often.") from error
            remedy = "nothing may be computed over the first axis (a mean, a maximum, a norm over all nodes) but by mix"
            same = torch.allclose(apart, whole, rtol=1e-5, atol=1e-6)
            self._require(same, f" gives other numbers {where}", remedy)

    def _trained(self, graph: Any, a: Array, b: Array, x0: Array, rounds: int) -> Array:
        algorithm = self._make()
        model: Array = algorithm.model(quadratics.train(algorithm, graph, a, b, x0, rounds)).double().numpy()
        return model

    def convergence(self, rounds: int) -> None:
        a, b, x0 = problem(NODES, seed=3)
        alike = np.tile(b[0], (NODES, 1))
        end = self._trained(self._graph, np.full(NODES, 1.3), alike, x0, rounds)
        left = np.abs(end - alike).max() / np.abs(x0 - alike).max()
        remedy = "use another lr= or rounds=, or look at its step and at weights (column weights keep sums, so models"
        remedy += " must be divided by the mixed ones)"
        what = f" keeps {left:.0%} of the way to the minimum of a quadratic after {rounds} rounds without noise"
        self._require(left < 0.01, f"{what}, all nodes alike", remedy)  # nan fails
        best = quadratics.minimum(a, b)
        left = np.abs(self._trained(self._graph, a, b, x0, rounds) - best).max() / np.abs(b - best).max()
        what = f": nodes with different records end {left:.0%} as far from the minimum of their sum as each would"
        self._require(left < 0.5, f"{what} by itself", "it must mix what it computes, or needs a smaller lr")

    def equality(self, reference: Reference, lr: float) -> None:
        a, b, x0 = problem(NODES, seed=5)
        for irregular in (False, True):
            graph = topology(self._algorithm, NODES, irregular=irregular, static=True)
            model = self._trained(graph, a, b, x0, 15)
            expected = np.asarray(reference(graph.weights(0).toarray(), a, b, x0, lr, 15))
            off = np.abs(model - expected) - 1e-4 * np.abs(expected)
            at = np.unravel_index(int(np.argmax(off)), off.shape)
            what = f" is not its reference: after 15 rounds node {at[0]} has {model[at]:.6g} in coordinate {at[1]}"
            self._require(off.max() < 1e-5, what, f"the reference has {expected[at]:.6g} there")
