"""The table [algorithm]: a method by the name of its preset, what every method has, and the options of its rule."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import Field

from gossamer import algorithms as rules
from gossamer.algorithms.base import Exponential
from gossamer.config.methods import MEANINGS, method_names, preset_of
from gossamer.options.registry import Registry, Table

if TYPE_CHECKING:
    from gossamer.algorithms.base import Algorithm as Rule

CONTEXT = ("lr", "seed", "rounds")  # fields of a rule that are no options: the run gives them
Step = Annotated[float, Field(gt=0, lt=1e12)]


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """start · decay^(t / rounds) / (t + 1)^power; decay = 1 and power = 0 keep it constant."""

    start: Annotated[Step, Field(description="at the first round")]
    decay: Annotated[Step, Field(description="what is left of it at the last round")] = 1.0
    power: Annotated[float, Field(ge=0, le=1, description="of the round by which it is divided")] = 0.0


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What every method has; `auto.py` puts a number where `lr` is "auto" before this is checked."""

    lr: Annotated[
        Step | Annotated[LearningRate, Table()],
        Field(description="step size: a number, { start, decay, power }, or auto: see docs/frontier.md"),
    ] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1, description="share of the last step that is kept")] = 0.0
    mixes: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["exact"],
        Field(
            description="exchanges in a round, each over the next graph; exact: gradients as means of all nodes"
        ),
    ] = 1
    tail_average: Annotated[
        float, Field(ge=0, le=1, description="share of the last rounds whose mean is the model")
    ] = 0.0
    final_gossip: Annotated[int, Field(ge=0, le=10_000, description="exchanges of the models at the end")] = 0

    kind: ClassVar[str]
    rule: ClassVar[str]  # the name of the update rule

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The options of the rule are fields of the method's own class: see `_table_of`."""

    @property
    def rate(self) -> LearningRate:
        return self.lr if isinstance(self.lr, LearningRate) else LearningRate(start=self.lr)

    def step_sizes(self, rounds: int) -> Exponential:
        """η(t) over a run."""
        rate = self.rate
        return Exponential(rate.start, rate.decay, rounds, rate.power)

    def make(self, *, rounds: int, seed: int) -> Rule:
        """The update rule with these options."""
        rule = rules.rule(self.rule)
        given = {"lr": self.step_sizes(rounds), "seed": seed, "rounds": rounds}
        names = [field.name for field in dataclasses.fields(rule) if field.init]
        instance: Rule = rule(
            **{name: given[name] if name in CONTEXT else getattr(self, name) for name in names}
        )
        return instance


def _table_of(kind: str) -> type[Any]:
    """The common fields and the options of the rule, which stay as the rule has them."""
    name = preset_of(kind)["rule"]
    rule = rules.rule(name)
    types = get_type_hints(rule, include_extras=True)
    own = [
        (
            field.name,
            types[field.name],
            dataclasses.field(default=field.default)
            if field.default_factory is dataclasses.MISSING
            else dataclasses.field(default_factory=field.default_factory),
        )
        for field in dataclasses.fields(rule)
        if field.init and field.name not in CONTEXT
    ]
    return dataclasses.make_dataclass(
        f"{rule.__name__}Options",
        own,
        bases=(Algorithm,),
        frozen=True,
        kw_only=True,
        namespace={"rule": name, "__doc__": MEANINGS.get(kind, rule.__doc__)},
    )


algorithms: Registry[Algorithm] = Registry("algorithm", names=method_names, make=_table_of)
