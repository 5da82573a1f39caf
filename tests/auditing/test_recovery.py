"""What an observer reads off the messages is what was drawn; what it cannot read it filters as well as can be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.audits import on_axes, outlined
from tests.support.observed import CASES, KM_CASES, LR, ROUNDS, D, N, topology_for, train
from tests.support.refusals import expect_refusal
from tests.support.registries import rules

from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.means import FilterMean, WindowMean
from gossamer.algorithms.wrappers import ExactMean
from gossamer.auditing.recovery import RECOVERIES, Attacker, Draw, LinearSystem, MessageReader, Sign, Step, km
from gossamer.auditing.trainings import StackedExchange
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.method import NoisyMessages, Unreleased
from gossamer.methods.km.operators import Forward
from gossamer.runtime.group import SimulatedExchange
from gossamer.topology.exact import Windows, filter_of, window_topology
from gossamer.topology.kinds import build


@pytest.mark.parametrize("name", CASES)
def test_everyone_recovers_the_noised_gradients(name: str) -> None:
    algorithm, kind = CASES[name]
    found: list[Draw | Sign | Step] = []
    drawn = train(algorithm, topology_for(algorithm, kind), [MessageReader(algorithm, found.append)])
    # DSGT's last gradient enters a tracker that is never sent.
    assert len(found) == ROUNDS - (name == "dsgt")
    for k, one in enumerate(found):
        if isinstance(one, Sign):
            assert torch.equal(one.positive, drawn[one.draw] + one.offset > 0)
            continue
        assert isinstance(one, Draw)
        assert one.draws == tuple(k * algorithm.draws + j for j in range(algorithm.draws))
        expected = sum(gain * drawn[i] for i, gain in zip(one.draws, one.gains, strict=True))
        torch.testing.assert_close(one.value, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", KM_CASES)
def test_everyone_recovers_the_answers_inside_an_operator(name: str) -> None:
    """Wherever the penalty's map lets them through: not where it is flat."""
    algorithm = KM_CASES[name]
    found: list[Any] = []
    drawn = train(algorithm, topology_for(algorithm, "ring"), [MessageReader(algorithm, found.append)])
    # The solution that Douglas and Rachford give out is the penalty's map of the last iterate, not the iterate.
    assert len(found) == ROUNDS - (algorithm.mapping.asks == "envelope" and name != "backward")
    for k, one in enumerate(found):
        assert one.draws == (k,)
        known = torch.ones_like(drawn[k], dtype=torch.bool) if one.known is None else one.known
        assert known.any()
        torch.testing.assert_close(one.value[known], drawn[k][known], rtol=1e-7, atol=1e-9)
    some = [one.known for one in found if one.known is not None]
    assert bool(some) == (name in ("l1", "l1 inside", "box"))
    assert all(not mask.all() for mask in some[-1:])


@pytest.mark.parametrize("sees_models", [True, False])
def test_noise_on_the_messages_is_what_is_left_on_the_answers(sees_models: bool) -> None:
    """x̃⁺ − Wx̃ = −αγ g + n⁺ (DP-dKM, Algorithm 1); the last iterate has no noise."""
    algorithm, added = KM(lr=LR, operator="forward", gamma=0.2), []

    class Noisy:
        """Remembers what `NoisyMessages` adds."""

        def add(self, stream: Any, nodes: Any, k: int, sums: torch.Tensor, **how: Any) -> None:
            noise = torch.randn(sums.shape, generator=torch.Generator().manual_seed(k)).to(sums)
            added.append(noise)
            sums += noise

        def release(self, *what: Any, **how: Any) -> Any:
            return None

    def noised(plain: Any) -> NoisyMessages:
        return NoisyMessages(
            plain, noise=Noisy(), scale=torch.ones(N), stream=None, book=Unreleased(),
            nodes=range(N), adjacency="replace-one",
        )  # type: ignore[arg-type]  # fmt: skip

    found: list[Any] = []
    everyone = MessageReader(algorithm, found.append, sees_models=sees_models)
    drawn = train(algorithm, topology_for(algorithm, "ring"), [everyone], noised=noised)
    assert len(found) == ROUNDS - (not sees_models)
    for k, one in enumerate(found):
        last = k == ROUNDS - 1
        assert one.message_gain == (0.0 if last else pytest.approx(1 / (0.2 * LR(k))))
        noise = torch.zeros_like(drawn[k]) if last else one.message_gain * added[k + 1]
        torch.testing.assert_close(one.value, drawn[k] - noise, rtol=1e-7, atol=1e-7)


def test_operators_and_penalties_that_cannot_be_read_backwards_are_refused() -> None:
    class Twice(Forward):
        def __call__(self, x: torch.Tensor, grad: Any) -> torch.Tensor:
            return x - self.step * grad(x) - self.step * grad(x)

    class Squares(Forward):
        def __call__(self, x: torch.Tensor, grad: Any) -> torch.Tensor:
            return x - grad(x) ** 2

    class Own:
        def __call__(self, x: torch.Tensor, step: float) -> torch.Tensor:
            return x

    for reads in (Twice, Squares):
        algorithm = KM(lr=LR, operator="forward")
        vars(algorithm)["mapping"] = reads(0.1)
        with expect_refusal(key="algorithm.operator", value="forward"):
            next(km(algorithm, None))
    with expect_refusal(key="penalty", names="undo"):
        next(km(KM(lr=LR, penalty=Own()), None))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["one-peer-exponential", "ring"])
def test_the_first_message_of_an_exact_mean_is_the_gradient(kind: str) -> None:
    topology = build(kind, nodes=N, weights="doubly", seed=1)
    mean: Any = WindowMean(Windows(N), 2.0**-40)
    if kind == "ring":
        mean = FilterMean(filter_of(topology))
    else:
        topology = window_topology(topology, 1)
    algorithm, found = ExactMean(DSGD(lr=LR), mean), list[Any]()
    drawn = train(algorithm, topology, [MessageReader(algorithm, found.append)])
    assert [one.draws for one in found] == [(k,) for k in range(ROUNDS)]
    for one, gradient in zip(found, drawn, strict=True):
        torch.testing.assert_close(one.value, gradient.float(), rtol=1e-6, atol=1e-9)
    with expect_refusal(key="algorithm.mixes", names="--observer"):
        LinearSystem(algorithm, topology, D)


def test_every_algorithm_has_a_recovery() -> None:
    assert set(rules().values()) - {rules()["without-replacement"]} <= set(RECOVERIES)


def test_runs_stand_apart_on_the_leading_axis() -> None:
    """Node-major rows: mixing four runs at once is mixing each alone."""
    algorithm, kind = CASES["push-sum"]
    topology = topology_for(algorithm, kind)
    together = StackedExchange(SimulatedExchange(topology), N, [])
    values = torch.randn(N, 4, D, dtype=torch.float64)
    mixed = together(2, values.reshape(-1, D)).reshape(N, 4, D)
    for r in range(4):
        torch.testing.assert_close(mixed[:, r], torch.from_numpy(topology.weights(2) @ values[:, r].numpy()))


@pytest.mark.parametrize(("family", "deviation"), [("gaussian", 1.0), ("truncated-gaussian", 1.0), ("laplace", 2**0.5)])
def test_the_filter_is_told_a_standard_deviation(family: str, deviation: float) -> None:
    parts = on_axes(outlined(privacy__noise__family={"kind": family}, privacy__sampling={"kind": "full"}, rounds=2))
    attacker = Attacker(parts, 1e4, False)
    released = parts.noise.levels(0) * parts.clip().at(0, 1).reference.double() / parts.plans[0].lot
    assert float(attacker.linear_spread(0)[0]) == pytest.approx(deviation * float(released[0]), rel=1e-5)
