"""A method's table has the options of its rule, and a new rule is a method at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pytest
from pydantic import Field
from tests.support.refusals import expect_refusal

import gossamer
from gossamer import algorithms as rules
from gossamer.algorithms.base import Grad, Mix, Schedule
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.methods import CONTEXT, MEANINGS, PRESETS, algorithms, method_names
from gossamer.options.registry import options_of


class State(NamedTuple):
    x: Any


@dataclass(frozen=True, kw_only=True)
class Patient:
    """θ ← W θ − η p g(θ)."""

    lr: Schedule
    pace: Annotated[float, Field(gt=0, le=1, description="share of a step")] = 0.5
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Any) -> State:
        return State(x0)

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        return State(mix(s.x) - self.pace * self.lr(t) * grad(s.x))

    def model(self, s: State) -> Any:
        return s.x


@pytest.fixture
def patient() -> Iterator[None]:
    rules.register("patient")(Patient)
    yield
    del rules.RULES["patient"]


@pytest.mark.parametrize("kind", method_names())
def test_the_options_are_the_fields_of_the_rule_that_no_run_gives(kind: str) -> None:
    rule = rules.rule(algorithms[kind].rule)
    own = [option.name for option in options_of(algorithms[kind])][5:]
    assert own == [field.name for field in fields(rule) if field.name not in CONTEXT]
    assert all(option.meaning for option in options_of(algorithms[kind]))
    assert not {"weights", "draws", *CONTEXT[1:]} & {option.name for option in options_of(algorithms[kind])}


def test_every_preset_says_what_it_is() -> None:
    assert set(MEANINGS) == set(PRESETS)


@pytest.mark.parametrize("kind", method_names())
def test_a_table_makes_its_rule_with_the_defaults_of_the_rule(kind: str) -> None:
    lr = {"start": 0.5, "decay": 0.25}
    made = algorithms.parse({"kind": kind, "lr": lr}).make(rounds=8, seed=3)
    rule = rules.rule(algorithms[kind].rule)
    assert type(made) is rule
    assert (made.lr(0), made.lr(8)) == (0.5, 0.125)
    given = {"lr": made.lr, "seed": 3, "rounds": 8}
    assert made == rule(**{f.name: given[f.name] for f in fields(rule) if f.name in CONTEXT})


def test_a_new_algorithm_is_a_method_with_a_default_preset(patient: None, tmp_path: Path) -> None:
    changes = {"algorithm.kind": "patient", "algorithm.pace": 0.25, "topology.kind": "ring", "rounds": 3}
    recipe = {**recipes.read("quickstart"), "privacy": {"epsilon": 8.0}}
    config = resolve(recipe, changes)
    made = config.algorithm.make(rounds=3, seed=0)
    assert made == Patient(lr=made.lr, pace=0.25)
    assert (config.privacy.clip.kind, config.privacy.clip.bound) == ("constant", 1.0)
    assert (config.privacy.noise.schedule.kind, config.privacy.claim) == ("constant", "none")
    assert (config.privacy.sampling.kind, config.privacy.sampling.lot) == ("poisson", 32)
    with expect_refusal(key="algorithm.pace", value="2", names="1", remedy=True):
        resolve(recipe, {**changes, "algorithm.pace": 2})
    outcome = gossamer.run(recipe, changes, out=tmp_path / "r")
    assert 0 < outcome.result["epsilon_proven"] <= 8
    assert outcome.result["epsilon_claimed"] is None


def test_a_name_is_taken_once(patient: None) -> None:
    with pytest.raises(ValueError, match="there already"):
        rules.register("patient")(Patient)
