"""Pieces around any algorithm: closed forms on quadratics, and that nothing changes where nothing is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.means import WindowMean
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import (
    Centre,
    ExactMean,
    FinalGossip,
    Mixes,
    Momentum,
    TailAverage,
    Wrapper,
    mixes_of,
    within_draws,
)
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.exact import Windows, window_topology
from gossamer.topology.kinds import build as build_topology

N, D, ROUNDS = 6, 4, 12
RULES = [PushSum, DSGD, DSGT, DiNNO]


def points(seed: int) -> torch.Tensor:
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


TARGETS = points(1)


def quadratic(x: torch.Tensor) -> torch.Tensor:
    return x - TARGETS


def rule(kind: Any, lr: float = 0.1) -> Any:
    return kind(lr=Exponential(lr))


def exchange(algorithm: Any) -> SimulatedExchange:
    kind = "one-peer-exponential" if algorithm.weights == "column" else "ring"
    return SimulatedExchange(build_topology(kind, nodes=N, weights=algorithm.weights, seed=0))


def trained(algorithm: Any, rounds: int = ROUNDS, over: Any = None, after: Any = lambda t, s: None) -> torch.Tensor:
    state = run(
        algorithm,
        algorithm.init(points(0)),
        quadratic,
        over or exchange(algorithm),
        rounds=rounds,
        after_round=after,
    )
    result: torch.Tensor = algorithm.model(state)
    return result


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(
    "wrap",
    [Wrapper, lambda a: Momentum(a, 0.0), lambda a: Mixes(a, 1), lambda a: TailAverage(a, ROUNDS - 1)],
    ids=["piece", "momentum 0", "one mix", "the last alone"],
)
def test_a_piece_that_does_nothing_changes_nothing(kind: Any, wrap: Any) -> None:
    bare = rule(kind)
    assert torch.allclose(trained(wrap(bare)), trained(bare), rtol=0, atol=1e-12)


def test_momentum_is_heavy_ball() -> None:
    def stay(t: int, *tensors: torch.Tensor) -> Any:
        return tensors[0] if len(tensors) == 1 else tensors

    x, v = points(0), torch.zeros(N, D, dtype=torch.float64)
    for _ in range(ROUNDS):
        v = 0.7 * v + quadratic(x)
        x = x - 0.1 * v
    assert torch.allclose(trained(Momentum(rule(DSGD), 0.7), over=stay), x, atol=1e-12)


def test_momentum_is_carried_between_draws_of_a_round() -> None:
    seen = []

    class Two:
        weights, draws = "doubly", 2

        def init(self, x0: torch.Tensor) -> Any:
            return rule(DSGD).init(x0)

        def step(self, s: Any, grad: Any, mix: Any, t: int) -> Any:
            seen.extend([grad(torch.ones(1, 1)), grad(torch.ones(1, 1))])
            return s

        def model(self, s: Any) -> Any:
            return s.x

    piece = Momentum(Two(), 0.5)
    state = piece.init(torch.zeros(1, 1))
    state = piece.step(state, torch.clone, lambda *a: a, 0)
    piece.step(state, torch.clone, lambda *a: a, 1)
    assert [float(g) for g in seen] == [1, 1.5, 1.75, 1.875]


def test_the_tail_average_is_the_mean_of_the_last_models() -> None:
    models: list[torch.Tensor] = []
    bare = rule(PushSum)
    trained(bare, after=lambda t, s: models.append(bare.model(s)))
    for start in (0, 5, ROUNDS - 1):
        averaged = trained(TailAverage(bare, start))
        assert torch.allclose(averaged, torch.stack(models[start:]).mean(0), atol=1e-12)


@pytest.mark.parametrize("kind", [PushSum, DSGD, DSGT])
def test_final_gossip_brings_the_models_to_their_mean(kind: Any) -> None:
    bare = rule(kind)
    before, after = trained(bare), trained(FinalGossip(bare, ROUNDS - 1, 400))
    assert torch.allclose(after, before.mean(0).expand_as(after), atol=1e-9)
    assert not torch.allclose(before, after, atol=1e-3)


def test_mixes_run_over_successive_graphs() -> None:
    topology = build_topology("one-peer-exponential", nodes=8, weights="column", seed=0)
    asked: list[int] = []
    plain = SimulatedExchange(topology)

    def noted(t: int, *tensors: torch.Tensor) -> Any:
        asked.append(t)
        return plain(t, *tensors)

    algorithm = Mixes(rule(PushSum), 3)
    assert mixes_of(algorithm) == 3
    start = torch.arange(8.0, dtype=torch.float64)[:, None]
    state = run(algorithm, algorithm.init(start), torch.zeros_like, noted, rounds=2)
    assert asked == [0, 1, 2, 3, 4, 5]
    # On 2³ nodes three exchanges of the one-peer exponential graph are the exact mean.
    assert torch.allclose(algorithm.model(state), torch.full((8, 1), 3.5, dtype=torch.float64))


def test_the_mean_is_released_once_agreed_upon_and_left_alone() -> None:
    calls = []

    def grad(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.clone())
        if len(calls) == 1:
            return 0.5 * TARGETS  # a mean of records, clipped to half
        return torch.ones_like(x)

    algorithm = Centre(Momentum(rule(PushSum), 0.9), 2, 0.5, 200)
    start = points(0)
    state = run(algorithm, algorithm.init(start), grad, exchange(algorithm), rounds=3)
    model = algorithm.model(state)
    assert len(calls) == 4
    assert torch.allclose(model[:, :2], TARGETS[:, :2].mean(0).expand(N, 2), atol=1e-6)
    assert not torch.allclose(model[:, 2:], start[:, 2:], atol=1e-3)


@pytest.mark.parametrize("kind", [PushSum, DSGD, DSGT])
def test_exact_means_are_one_node_with_the_mean_gradient(kind: Any) -> None:
    """All nodes start alike, and what a rule does with momentum on one node is what it does on each."""
    topology = window_topology(build_topology("one-peer-exponential", nodes=N, weights="doubly", seed=0), 0)
    exact = ExactMean(Momentum(rule(kind), 0.5), WindowMean(Windows(N), 2.0**-40))
    assert exact.weights == exact.inner.weights
    seen: list[int] = []
    plain = SimulatedExchange(topology)

    def noted(t: int, *tensors: torch.Tensor) -> Any:
        seen.append(t)
        return plain(t, *tensors)

    start = points(0)[:1].expand(N, D).clone()
    state = run(exact, exact.init(start), quadratic, noted, rounds=ROUNDS)
    assert seen == list(range(ROUNDS * 3))  # 6 = 4 + 2: two doublings and a merge
    assert all(torch.equal(row, exact.model(state)[0]) for row in exact.model(state))
    alone = Momentum(rule(kind), 0.5)
    one = run(
        alone, alone.init(start[:1]), lambda x: x - TARGETS.mean(0), lambda t, *a: a if len(a) > 1 else a[0],
        rounds=ROUNDS,
    )  # fmt: skip
    torch.testing.assert_close(exact.model(state)[:1], alone.model(one), rtol=0, atol=1e-10)


def test_exact_means_go_by_their_draws() -> None:
    """After a stop that lost two draws, round 1 takes draw 3 and the graphs of mean 3."""

    class Reader:
        draws = 3

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.draws += 1
            return quadratic(x)

    seen: list[int] = []

    def noted(t: int, rows: torch.Tensor) -> torch.Tensor:
        seen.append(t)
        return rows

    exact = ExactMean(rule(DSGD), WindowMean(Windows(N), 2.0**-40))
    run(exact, exact.init(points(0)), Reader(), noted, rounds=3, start=1)
    assert seen == [9, 10, 11, 12, 13, 14]


def test_what_an_exchange_of_equals_returns_is_the_receivers_own() -> None:
    class Writes(DSGD):
        def step(self, s: Any, grad: Any, mix: Any, t: int) -> Any:
            x, y = mix(s.x, s.x)
            x += 1
            assert not torch.equal(x, y)
            assert torch.equal(y, s.x)
            return s._replace(x=x)

    made = ExactMean(Writes(lr=Exponential(0.1)), WindowMean(Windows(N), 1.0))
    assert torch.equal(made.step(made.init(points(0)), quadratic, None, 0).x, points(0) + 1)  # type: ignore[arg-type]


def test_state_stays_a_flat_tuple_of_tensors() -> None:
    algorithm = FinalGossip(TailAverage(Mixes(Momentum(rule(PushSum), 0.9), 2), 3), 9, 4)
    state = algorithm.init(points(0))
    assert state._fields == ("x", "w", "velocity", "average", "agreed")
    assert all(isinstance(value, torch.Tensor) for value in state)


@dataclass(frozen=True, kw_only=True)
class TwoSteps(DSGD):
    """Declares one draw and takes two, from the third round on if `late`."""

    late: ClassVar[bool] = False

    def step(self, s: Any, grad: Any, mix: Any, t: int) -> Any:
        s = super().step(s, grad, mix, t)
        return s._replace(x=s.x - self.lr(t) * grad(s.x)) if t > 2 or not self.late else s


@dataclass(frozen=True, kw_only=True)
class LateTwoSteps(TwoSteps):
    late: ClassVar[bool] = True


@pytest.mark.parametrize(("made", "at"), [(TwoSteps, "round 1"), (LateTwoSteps, "round 3")])
def test_a_method_that_draws_more_often_than_it_declares_is_named(made: Any, at: str, tmp_path: Path) -> None:
    asked = {"rounds": 5, "topology.kind": "ring", "nodes": 3, "data.train_rows": 60, "algorithm.lr": 0.1}
    with expect_refusal(f"{made.__name__}.draws", 1, [at]):
        gossamer.run("quickstart", asked, algorithm=made, out=tmp_path / "r")
    assert (tmp_path / "r").exists() == (
        made is LateTwoSteps
    )  # what shows in the plan is refused before a record is read


def test_the_first_round_of_a_centred_method_may_draw_once_more() -> None:
    centred = Centre(DSGD(lr=lambda t: 0.1), size=1, bound=1.0, rounds=1)
    for t, most in ((0, 2), (1, 1)):
        grad = within_draws(torch.zeros_like, Momentum(centred, 0.5), t)
        for _ in range(most):
            grad(torch.zeros(1, 2))
        with expect_refusal(key="DSGD.draws", value="1"):
            grad(torch.zeros(1, 2))
