"""Parts and settings by which a printed ε would be false: each is refused, or priced as what it is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.support.mechanism import levels
from tests.support.refusals import expect_refusal

from gossamer import algorithms
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.methods import Algorithm
from gossamer.mechanism.clipping import QuantileClip, Stretches, clips
from gossamer.mechanism.noise import families
from gossamer.mechanism.noise.base import Mechanism
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.sampling import Full
from gossamer.methods.claims import CLAIMS, Draws
from gossamer.options.registry import Registry
from gossamer.options.types import LEAST_BOUND
from gossamer.training.assemble import assemble
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan

SHARED = {
    "algorithm.kind": "without-replacement", "model.kind": "one-vs-all", "topology.kind": "complete",
    "algorithm.lr": 0.1, "privacy.sampling": {"kind": "one-pass", "lot": 30}, "privacy.adjacency": "replace-one",
}  # fmt: skip


def outlined(**changes: Any) -> Any:
    asked = {"rounds": 4, **{key.replace("__", "."): value for key, value in changes.items()}}
    return Plan.of(resolve(recipes.read("quickstart"), asked))


Register = Callable[[Registry[Any], str, type[Any]], None]


@pytest.fixture
def register() -> Iterator[Register]:
    """Register for the length of a test: others list what there is."""
    added: list[tuple[Registry[Any], str]] = []

    def add(registry: Registry[Any], name: str, kind: type[Any]) -> None:
        registry.register(name)(kind)
        added.append((registry, name))

    yield add
    for registry, name in added:
        del registry._kinds[name]


@dataclass(frozen=True, kw_only=True)
class Boasting(Gaussian):
    """Its releases say twice the noise that is added."""

    def release(self, sigma: float, *rest: Any) -> Any:
        return super().release(2 * sigma, *rest)


def test_noise_that_plans_more_than_it_adds_is_refused(register: Register) -> None:
    register(families, "boasting", Boasting)
    with expect_refusal(key="privacy.noise.family.kind", value="boasting"):
        assemble(outlined(privacy__noise__family={"kind": "boasting"}))


@dataclass(frozen=True, kw_only=True)
class BoastingInTheMiddle(Gaussian):
    """Honest about much noise, and so in the first draw and the last."""

    def release(self, sigma: float, *rest: Any) -> Any:
        return super().release(sigma if sigma > 15 else 2 * sigma, *rest)


def test_noise_that_plans_more_than_it_adds_in_one_draw_is_refused(register: Register) -> None:
    register(families, "boasting", BoastingInTheMiddle)
    level = {"kind": "sequence", "values": [20.0, 10.0, 20.0]}
    fixed = {"privacy__epsilon": None, "privacy__noise__multiplier": 20.0, "privacy__noise__schedule": level}
    assemble(outlined(rounds=3, **fixed))
    with expect_refusal(key="privacy.noise.family.kind", value="boasting"):
        assemble(outlined(rounds=3, **fixed, privacy__noise__family={"kind": "boasting"}))


def test_a_count_must_leave_something_of_the_largest_noise_of_all_draws() -> None:
    """Of a draw at multiplier z the quantile's count takes (z / 2σ_b)²: all of it at z = 2σ_b, here in the middle."""
    clip = {"kind": "quantile", "count_noise": 20.0}
    for values, refused in (
        ([20.0, 30.0, 20.0], False),
        ([20.0, 50.0, 20.0], True),
        ([20.0, 20.0, 50.0], True),
    ):
        asked = {"privacy__noise__schedule": {"kind": "sequence", "values": values}, "privacy__clip": clip}
        o = outlined(rounds=3, privacy__epsilon=None, privacy__noise__multiplier=20.0, **asked)
        if not refused:
            assemble(o)
            continue
        with expect_refusal(key="privacy.clip.count_noise", value="20.0"):
            assemble(o)


def test_lemma_4_looks_at_a_long_step_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    outlined(**SHARED)
    peak = Stretches((0.1, 5.0, 0.1), 3)
    monkeypatch.setattr(Algorithm, "step_sizes", lambda self, rounds: peak)
    with expect_refusal(key="algorithm.lr", value="5.0", names="4"):
        outlined(**SHARED, rounds=3)


@pytest.mark.parametrize("claim", ["rdp", "adad2p"])
def test_claims_for_equal_noise_take_the_least_of_all_draws(claim: str) -> None:
    rule = CLAIMS[claim]

    def claimed(*values: float) -> float:
        run = Draws(3, Stretches(values, 3), Gaussian(), Full(), 1.0, 5)
        found = rule.claim(run, 10.0, 0.1, 1e-5, 3).epsilon
        assert found is not None
        return found

    assert claimed(1.0, 0.5, 1.0) == claimed(0.5, 0.5, 0.5) > claimed(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"privacy__clip": {"kind": "decaying", "start": 1e-9, "ratio": 1e6}},
            "privacy.clip.kind decaying bound",
        ),
        ({"privacy__clip": {"kind": "constant", "bound": 1e-30}}, "privacy.clip.bound 1e-30"),
        ({"privacy__clip": {"kind": "constant", "bound": 1e30}}, "privacy.clip.bound 30"),
        ({"privacy__clip": {"kind": "decaying", "start": 1.0, "ratio": 1e40}}, "privacy.clip.ratio"),
        ({"privacy__clip": {"kind": "sequence", "values": [1.0, 1e-20, 1.0]}}, "privacy.clip.values[1] 1e-20"),
        ({"privacy__clip": {"kind": "normalised", "gamma": 1e-30}}, "privacy.clip.gamma 1e-30"),
        ({"privacy__noise__multiplier": 1e-31, "privacy__epsilon": None}, "privacy.noise scale"),
    ],
)
def test_bounds_and_noise_that_float32_cannot_say_are_refused(changes: dict[str, Any], says: str) -> None:
    """In any draw: what rounds to 0 or to ∞ is not what the ledger says."""
    with expect_refusal(names=says):
        outlined(**{"rounds": 4, **changes})


@pytest.mark.parametrize("size", [1e-30, 1e-23, 1e-20, 1e-19, 1e-15, 1e-12, 1e-6, 1.0])
def test_a_normalised_record_contributes_at_most_one_however_short_it_is(size: float) -> None:
    """At the least γ that is allowed; below it a record of 1e-23 would weigh 1/γ."""
    gamma = math.nextafter(LEAST_BOUND, 1)
    clip = clips.parse({"kind": "normalised", "gamma": gamma}).make(1, torch.ones(1), torch.ones(1))
    for dim in (1, 1000):
        g = torch.full((1, 1, dim), size)
        norms = g.square().sum(-1).sqrt()  # in float32, as kernels do: the squares underflow
        weights = clip.at(0, 1).weigh(norms)
        assert float((weights[..., None] * g).double().norm()) <= 1 + 1e-6


def test_local_models_take_the_plain_gaussian_alone(register: Register) -> None:
    """They draw their noise themselves, so another mechanism's word about it would be nobody's."""
    register(families, "boasting", Boasting)
    outlined(**SHARED)
    with expect_refusal(key="privacy.noise.family.kind", value="boasting"):
        outlined(**SHARED, privacy__noise__family={"kind": "boasting"})


@pytest.mark.parametrize("power", [0.0, 0.001, 0.5])
def test_lemma_4_looks_at_the_longest_step_of_the_schedule(power: float) -> None:
    grows = {"start": 0.1, "decay": 1000.0, "power": power}
    with expect_refusal(key="algorithm.lr", names="4"):
        outlined(**{**SHARED, "algorithm.lr": grows})
    outlined(**{**SHARED, "algorithm.lr": {**grows, "decay": 1.0}})


@pytest.mark.parametrize("kind", ["dyn-d2p", "dp-dsgd", "dp-dkm"])
def test_scaled_records_bound_no_gradient(kind: str) -> None:
    changes = {"algorithm.kind": kind, "topology.kind": "ring", "algorithm.lr": 0.1}
    graph = changes if kind != "dyn-d2p" else {"algorithm.kind": kind}
    with expect_refusal(key="privacy.clip.kind", value="record-ball"):
        outlined(**graph, privacy__clip={"kind": "record-ball"})


@dataclass(frozen=True, kw_only=True)
class MyQuantile(QuantileClip):
    """As ours, under another name."""


def test_a_clip_is_judged_by_what_it_does_not_by_its_name(register: Register) -> None:
    register(clips, "my-quantile", MyQuantile)
    with expect_refusal(key="privacy.noise.family.kind", value="laplace"):
        outlined(privacy__clip={"kind": "my-quantile"}, privacy__noise__family={"kind": "laplace"})
    with expect_refusal(key="privacy.centre", value="0.1"):
        outlined(privacy__clip={"kind": "my-quantile"}, privacy__centre=0.1)


def test_a_private_mean_does_not_turn_resolvents_into_gradients() -> None:
    km = {
        "algorithm.kind": "dp-dkm", "topology.kind": "ring", "algorithm.lr": 0.5, "algorithm.operator": "backward",
        "loss": {"kind": "logistic"}, "data.positive": 3,
    }  # fmt: skip
    with expect_refusal(key="privacy.centre", names="resolvents"):
        outlined(**km, model__kind="softmax", privacy__centre=0.1)


@dataclass(frozen=True, kw_only=True)
class Listed(Gaussian):
    """A noise with an option that cannot be hashed."""

    sizes: list[float]
    adds: ClassVar[bool] = True


def test_a_noise_may_have_options_of_any_type(register: Register) -> None:
    register(families, "listed", Listed)
    plan = outlined(privacy__noise__family={"kind": "listed", "sizes": [1.0, 2.0]}).privacy
    assert plan.figures()["epsilon_proven"] == pytest.approx(outlined().privacy.figures()["epsilon_proven"])


def test_an_algorithm_cannot_take_a_methods_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(algorithms.RULES, "dyn-d2p", "gossamer.algorithms.dsgd:DSGD")
    with expect_refusal(key="algorithm", names="dyn-d2p"):
        resolve(recipes.read("quickstart"), {"algorithm.kind": "nothing-yet"})


def test_a_mechanism_that_forgets_to_add_its_noise_cannot_be_made() -> None:
    """It would log noise and add none."""

    @dataclass(frozen=True)
    class Forgetful(Mechanism):
        def released(self, *what: Any) -> Any:
            return None

    with pytest.raises(TypeError, match="draw"):
        Forgetful(levels(1.0, 2))  # type: ignore[abstract]


@pytest.mark.parametrize(("kind", "claim"), [("dyn-d2p", "lemma4"), ("dp-dsgd", "dp-dkm"), ("dp-dkm", "lemma4")])
def test_another_methods_claim_is_not_this_ones(kind: str, claim: str) -> None:
    graph = {} if kind == "dyn-d2p" else {"topology.kind": "ring", "algorithm.lr": 0.1}
    with expect_refusal("privacy.claim", claim):
        outlined(algorithm__kind=kind, privacy__claim=claim, **graph)


@pytest.mark.parametrize("name", ["own.npz", "own-{node}.npz"])
def test_a_file_that_changed_is_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    def write(value: float) -> None:
        x = np.full((20, 2), value, dtype=np.float32)
        for node in "01":
            np.savez(
                str(path).replace("{node}", node),
                x_train=x,
                y_train=np.arange(20) % 2,
                x_test=x,
                y_test=np.arange(20) % 2,
            )

    write(1.0)
    table = {"kind": "npz", "path": str(path), "classes": 2, "records": 10}
    config = resolve(recipes.read("quickstart"), {"data": table, "nodes": 2, "topology.kind": "complete"})
    cache = DataCache()
    first = cache.load(config, None).x_train[0, 0]
    time.sleep(0.02)
    write(2.0)
    assert (first, cache.load(config, None).x_train[0, 0]) == (1.0, 2.0)


def test_thinner_noise_in_a_ledger_is_a_higher_figure() -> None:
    """What is certified comes from the releases, not from the plan."""
    plan = outlined().privacy
    node = plan.nodes[0]
    assert plan.proven(replace(node, factor=node.factor / 2)).epsilon > 1.5 * node.proven.epsilon
    assert replace(plan, enforced=False).proven(node).because is not None
