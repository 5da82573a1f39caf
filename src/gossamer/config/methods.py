"""The named methods, as data, and the table [algorithm], which names one of them.

A method is an algorithm with its clip, noise and sampling parts. Its table has what every method has, and the options
of its rule.

A preset only fills in what the user leaves out. `sound` holds the privacy keys that differ where we prove the ε we
print, `paper` those that differ where we follow the paper, `options` the algorithm's own keys by mode; nothing below
the configuration knows which of the two it runs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import Field

from gossamer import algorithms as rules
from gossamer.algorithms.base import Exponential
from gossamer.errors import UserError
from gossamer.options.registry import Registry, Table

if TYPE_CHECKING:
    from gossamer.algorithms.base import Algorithm as Rule

_POISSON_LOT = {"sampling": {"kind": "poisson", "lot": 32}}
# Proposition 3 of Dyn-D2P: every record enters a round by an independent trial with probability 1/J.
_ONE_SAMPLE = {"sampling": {"kind": "poisson", "lot": 1}}
_CONSTANT, _DECAYING = {"kind": "constant", "bound": 1.0}, {"kind": "decaying", "start": 1.0, "ratio": 3.0}
_EVEN, _GROWING = {"kind": "constant"}, {"kind": "growing-budget", "ratio": 2.0}


def _push_sum(
    privacy: dict[str, Any], *, sound: dict[str, Any] | None = None, paper: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"rule": "push-sum", "privacy": privacy, "sound": sound or {}, "paper": paper or {}}


def _consensus(rule: str, *, paper_options: dict[str, Any] | None = None) -> dict[str, Any]:
    """dp-consensus: Poisson lots, constant clip; claimed by Rényi accounting under a relation that is not its own."""
    options = {"paper": paper_options or {}}
    privacy = {
        "clip": {"kind": "constant", "bound": 1.0},
        "noise": {"schedule": _EVEN},
        "sampling": {"kind": "poisson", "lot": 256},
        "claim": "rdp",
    }
    return {"rule": rule, "options": options, "privacy": privacy, "paper": {"adjacency": "replace-one"}}


def _dyn(clip: dict[str, Any], schedule: dict[str, Any]) -> dict[str, Any]:
    """Dyn-D2P and its by-products: a clip sequence and a sequence of per-step budgets."""
    privacy = {"clip": clip, "noise": {"schedule": schedule}, "claim": "gdp-clt"}
    return _push_sum(privacy, sound=_POISSON_LOT, paper=_ONE_SAMPLE)


# Sound: noise on what reads records, the penalty's map after mixing. Paper (Definition 2, Algorithm 1): one record a
# round, noise on the iterates sent, a bound on the residual that is assumed, the operator of the whole lot.
_KM = {
    "rule": "km",
    "options": {"paper": {"prox_first": True, "resolvent": "node"}},
    "privacy": {"noise": {"schedule": _EVEN}},
    "sound": {**_POISSON_LOT, "clip": _CONSTANT},
    "paper": {
        "sampling": {"kind": "single"},
        "clip": {"kind": "assumed", "bound": 1.0},
        "noise": {"schedule": _EVEN, "on": "iterate"},
        "adjacency": "replace-one",
        "claim": "dp-dkm",
    },
}

PRESETS: dict[str, dict[str, Any]] = {
    "sgp": _push_sum(
        {
            "clip": {"kind": "none"},
            "noise": {"schedule": {"kind": "none"}},
            "sampling": {"kind": "fixed-size", "lot": 32},
        }
    ),
    # AdaD2P scales the noise by the record's own gradient norm, which no accountant can price; the nearest
    # mechanism with a proof follows the norms through a private quantile.
    "adad2p": _push_sum(
        {},
        sound={**_POISSON_LOT, "clip": {"kind": "quantile"}, "noise": {"schedule": _EVEN}},
        paper={
            **_ONE_SAMPLE,
            "clip": {"kind": "none"},
            "noise": {"schedule": {"kind": "own-norm"}},
            "claim": "adad2p",
        },
    ),
    # ConstD2P believes in a bound G that was measured on private data; sound mode clips at G.
    "constd2p": _push_sum(
        {"noise": {"schedule": _EVEN}, "claim": "adad2p"},
        sound={**_POISSON_LOT, "clip": {"kind": "constant", "bound": 3.5}},
        paper={**_ONE_SAMPLE, "clip": {"kind": "assumed", "bound": 3.5}},
    ),
    "clipd2p": _push_sum(
        {"clip": _CONSTANT, "noise": {"schedule": _EVEN}, "claim": "adad2p"},
        sound=_POISSON_LOT,
        paper=_ONE_SAMPLE,
    ),
    "const-d2p": _dyn(_CONSTANT, _EVEN),
    "dyn-c-d2p": _dyn(_DECAYING, _EVEN),
    "dyn-mu-d2p": _dyn(_CONSTANT, _GROWING),
    "dyn-d2p": _dyn(_DECAYING, _GROWING),
    # Algorithm 2 of Dyn-D2P: any clip sequence, any noise sequence, the common scale by its eq. (10).
    "general-d2p": _push_sum(
        {
            "clip": _CONSTANT,
            "noise": {"schedule": {"kind": "sequence", "values": [1.0]}},
            "claim": "gdp-general",
        },
        sound=_POISSON_LOT,
        paper=_ONE_SAMPLE,
    ),
    # Every record in every round: the accounting is the Gaussian's closed form. See docs/frontier.md.
    "full-lot": {
        "rule": "push-sum",
        "options": {mode: {"lr": "auto", "momentum": 0.9, "final_gossip": 20} for mode in ("sound", "paper")},
        "privacy": {
            "sampling": {"kind": "full"},
            "clip": {"kind": "constant", "bound": "auto"},
            "noise": {"schedule": _EVEN},
        },
    },
    "dp-dsgd": _consensus("dsgd"),
    "dp-dsgt": _consensus("dsgt"),
    # Lemma 4 prices a write over all lots since the last; its relation is replace-one. Sound mode: the choice to write
    # follows released values only.
    "without-replacement": {
        "rule": "without-replacement",
        "alone": {"controller": "local"},  # nobody writes the shared model
        "options": {"sound": {"observes": "released"}, "paper": {"observes": "raw", "scored": "local"}},
        "privacy": {
            "clip": {"kind": "record-ball"},
            "noise": {"schedule": _EVEN},
            "sampling": {"kind": "one-pass", "lot": 50},
            "adjacency": "replace-one",
            "claim": "lemma4",
        },
    },
    # The paper's baseline: fresh lots every turn, everyone writes, ε split evenly over a record's expected visits.
    "with-replacement": {
        "rule": "without-replacement",
        "alone": {"controller": "local"},  # nobody writes the shared model
        "options": {mode: {"controller": "global", "average": False} for mode in ("sound", "paper")},
        "privacy": {
            "clip": {"kind": "record-ball"},
            "noise": {"schedule": _EVEN},
            "adjacency": "replace-one",
            "claim": "lemma4",
        },
        "sound": {"sampling": {"kind": "poisson", "lot": 50}},
        "paper": {"sampling": {"kind": "fixed-size", "lot": 50}},
    },
    "dp-dkm": _KM,
    "dp-dinno": _consensus("dinno", paper_options={"include_self": True}),  # the paper's N_i contains i
}

rules.reserve(PRESETS)


MEANINGS = {
    "sgp": "Stochastic gradient push without clip and noise (Assran et al. 2019).",
    "adad2p": "Push-sum; noise follows the gradient norms: by a private quantile, in the paper by the record's own.",
    "constd2p": "Push-sum; constant noise for a bound that the paper believes in and sound mode clips at.",
    "clipd2p": "Push-sum; constant clip, constant noise, AdaD2P's claim.",
    "const-d2p": "Push-sum; constant clip, constant noise, Dyn-D2P's claim.",
    "dyn-c-d2p": "Push-sum; the clip falls from round to round.",
    "dyn-mu-d2p": "Push-sum; the budget of a round grows.",
    "dyn-d2p": "Push-sum; the clip falls and the budget of a round grows.",
    "general-d2p": "Push-sum; any sequence of clips and of noise (Dyn-D2P, Algorithm 2).",
    "full-lot": "Push-sum; every record in every round, settings from public numbers: see docs/frontier.md.",
    "dp-dsgd": "Decentralized gradient descent with doubly stochastic weights (dp-consensus).",
    "dp-dsgt": "Gradient tracking with doubly stochastic weights (dp-consensus).",
    "dp-dinno": "Consensus ADMM, the primal problem by a few optimiser steps (dp-consensus).",
    "dp-dkm": "Krasnosel'skiĭ–Mann iteration of a nonexpansive operator, doubly stochastic weights (DP-dKM).",
    "without-replacement": "A shared model that goes round; each turn a node steps by itself or writes (Jin, He, Dai).",
    "with-replacement": "The same paper's baseline: fresh lots every turn, everyone writes.",
}
# Of an algorithm without a row of its own: no paper claims an ε.
_OF_A_NEW_ONE: dict[str, Any] = {
    "privacy": {**_POISSON_LOT, "clip": _CONSTANT, "noise": {"schedule": _EVEN}, "claim": "none"}
}


def method_names() -> list[str]:
    """Every `algorithm.kind`: the presets, and the rules that none of them uses."""
    used = {preset["rule"] for preset in PRESETS.values()}
    for name in rules.RULES:
        if name in PRESETS and PRESETS[name]["rule"] != name:
            raise UserError(f"an algorithm is registered as {name!r}, which is a method's name; choose another.")
    return [*PRESETS, *(name for name in rules.RULES if name not in used and name not in PRESETS)]


def preset_of(kind: str) -> dict[str, Any]:
    return PRESETS.get(kind) or {"rule": kind, **_OF_A_NEW_ONE}


def expand_preset(kind: str, mode: str) -> dict[str, Any]:
    """The configuration a method brings along, before the user's keys are laid over it."""
    preset = preset_of(kind)
    options = preset.get("options", {}).get(mode, {})
    return {"algorithm": {"kind": kind, **options}, "privacy": {**preset["privacy"], **preset.get(mode, {})}}


CONTEXT = ("lr", "seed", "rounds")  # fields of a rule that are no options: the run gives them
Step = Annotated[float, Field(gt=0, lt=1e12)]


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """start · decay^(t / rounds) / (t + 1)^power; decay = 1 and power = 0 keep it constant."""

    start: Annotated[Step, "at the first round"]
    decay: Annotated[Step, "what is left of it at the last round"] = 1.0
    power: Annotated[float, Field(ge=0, le=1), "of the round by which it is divided"] = 0.0


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What every method has; `auto.py` puts a number where `lr` is "auto" before this is checked."""

    lr: Annotated[
        Step | Annotated[LearningRate, Table()],
        "step size: a number, { start, decay, power }, or auto: see docs/frontier.md",
    ] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1), "share of the last step that is kept"] = 0.0
    mixes: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["exact"],
        "exchanges in a round, each over the next graph; exact: gradients as means of all nodes",
    ] = 1
    tail_average: Annotated[float, Field(ge=0, le=1), "share of the last rounds whose mean is the model"] = 0.0
    final_gossip: Annotated[int, Field(ge=0, le=10_000), "exchanges of the models at the end"] = 0

    kind: ClassVar[str]
    rule: ClassVar[str]  # the name of the update rule

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The options of the rule are fields of the method's own class: see `_table_of`."""

    def step_sizes(self, rounds: int) -> Exponential:
        """η(t) over a run."""
        rate = self.lr if isinstance(self.lr, LearningRate) else LearningRate(start=self.lr)
        return Exponential(rate.start, rate.decay, rounds, rate.power)

    def make(self, *, rounds: int, seed: int) -> Rule:
        """The update rule with these options."""
        rule = rules.rule(self.rule)
        given = {"lr": self.step_sizes(rounds), "seed": seed, "rounds": rounds}
        names = [field.name for field in dataclasses.fields(rule) if field.init]
        instance: Rule = rule(**{name: given[name] if name in CONTEXT else getattr(self, name) for name in names})
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
