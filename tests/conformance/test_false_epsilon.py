"""Parts and settings by which a printed ε would be false: each is refused, or priced as what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.mechanism import levels

from gossamer import algorithms
from gossamer.config import recipes, resolve
from gossamer.errors import UserError
from gossamer.mechanism.clipping import QuantileClip, clips
from gossamer.mechanism.noise import families
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.independent import ScaledNoise
from gossamer.options.registry import Registry
from gossamer.run.assemble import assemble
from gossamer.run.data import DataCache
from gossamer.run.outline import outline

SHARED = {
    "algorithm.kind": "without-replacement", "model.kind": "one-vs-all", "topology.kind": "complete",
    "algorithm.lr": 0.1, "privacy.sampling": {"kind": "one-pass", "lot": 30}, "privacy.adjacency": "replace-one",
}  # fmt: skip


def outlined(**changes: Any) -> Any:
    asked = {"rounds": 4, **{key.replace("__", "."): value for key, value in changes.items()}}
    return outline(resolve(recipes.read("quickstart"), asked))


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
    with pytest.raises(UserError, match="plans more noise than it adds"):
        assemble(outlined(privacy__noise__family={"kind": "boasting"}))


def test_local_models_take_the_plain_gaussian_alone(register: Register) -> None:
    """They draw their noise themselves, so another mechanism's word about it would be nobody's."""
    register(families, "boasting", Boasting)
    outlined(**SHARED)
    with pytest.raises(UserError, match=r"privacy\.noise\.family\.kind = 'boasting'"):
        outlined(**SHARED, privacy__noise__family={"kind": "boasting"})


@pytest.mark.parametrize("power", [0.0, 0.001, 0.5])
def test_lemma_4_looks_at_the_longest_step_of_the_schedule(power: float) -> None:
    grows = {"start": 0.1, "decay": 1000.0, "power": power}
    with pytest.raises(UserError, match="breaks Lemma 4"):
        outlined(**{**SHARED, "algorithm.lr": grows})
    outlined(**{**SHARED, "algorithm.lr": {**grows, "decay": 1.0}})


@pytest.mark.parametrize("kind", ["dyn-d2p", "dp-dsgd", "dp-dkm"])
def test_scaled_records_bound_no_gradient(kind: str) -> None:
    changes = {"algorithm.kind": kind, "topology.kind": "ring", "algorithm.lr": 0.1}
    graph = changes if kind != "dyn-d2p" else {"algorithm.kind": kind}
    with pytest.raises(UserError, match=r"privacy\.clip\.kind = 'record-ball'"):
        outlined(**graph, privacy__clip={"kind": "record-ball"})


@dataclass(frozen=True, kw_only=True)
class MyQuantile(QuantileClip):
    """As ours, under another name."""


@pytest.mark.parametrize(
    "noise", [{"privacy__noise__family": {"kind": "laplace"}}, {"privacy__noise__arithmetic": "lattice"}]
)
def test_a_clip_is_judged_by_what_it_does_not_by_its_name(register: Register, noise: dict[str, Any]) -> None:
    register(clips, "my-quantile", MyQuantile)
    with pytest.raises(UserError, match="Gaussian noise"):
        outlined(privacy__clip={"kind": "my-quantile"}, **noise)
    with pytest.raises(UserError, match="needs a clip that stays the same"):
        outlined(privacy__clip={"kind": "my-quantile"}, privacy__centre=0.1)


def test_a_private_mean_does_not_turn_resolvents_into_gradients() -> None:
    km = {
        "algorithm.kind": "dp-dkm", "topology.kind": "ring", "algorithm.lr": 0.5, "algorithm.operator": "backward",
        "loss": {"kind": "logistic"}, "data.positive": 3,
    }  # fmt: skip
    with pytest.raises(UserError, match="takes resolvents"):
        outlined(**km, model__kind="softmax", privacy__centre=0.1)


@dataclass(frozen=True, kw_only=True)
class Listed(Gaussian):
    """A noise with an option that cannot be hashed."""

    sizes: list[float]
    adds: ClassVar[bool] = True


def test_a_noise_may_have_options_of_any_type(register: Register) -> None:
    register(families, "listed", Listed)
    plan = outlined(privacy__noise__family={"kind": "listed", "sizes": [1.0, 2.0]}).plan
    assert plan.figures()["epsilon_proven"] == pytest.approx(outlined().plan.figures()["epsilon_proven"])


def test_an_algorithm_cannot_take_a_methods_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(algorithms.RULES, "dyn-d2p", "gossamer.algorithms.dsgd:DSGD")
    with pytest.raises(UserError, match="'dyn-d2p', which is a method's name"):
        resolve(recipes.read("quickstart"), {"algorithm.kind": "nothing-yet"})


def test_a_mechanism_that_forgets_to_add_its_noise_cannot_be_made() -> None:
    """It would log noise and add none."""

    @dataclass(frozen=True)
    class Forgetful(ScaledNoise):
        def released(self, *what: Any) -> Any:
            return None

    with pytest.raises(TypeError, match="draw"):
        Forgetful(levels(1.0, 2))  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("kind", "claim"), [("dyn-d2p", "lemma4"), ("dp-dsgd", "dp-dkm"), ("dp-dkm", "lemma4")]
)
def test_another_methods_claim_is_not_this_ones(kind: str, claim: str) -> None:
    graph = {} if kind == "dyn-d2p" else {"topology.kind": "ring", "algorithm.lr": 0.1}
    with pytest.raises(UserError, match=f"privacy.claim = '{claim}' is another method's"):
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
    plan = outlined().plan
    node = plan.nodes[0]
    thin = plan.proven(node.factor / 2, node.rate, node.delta, node.allowance, node.end)
    assert thin.epsilon > 1.5 * node.proven.epsilon
    assert replace(plan, enforced=False).proven(1.0, 0.5, 1e-5, 3, np.inf).because is not None
