"""Short runs to audit, and the verdict of an attack on one."""

from __future__ import annotations

from typing import Any

from tests.support.configurations import dotted

from gossamer.auditing import canaries
from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import observer_of
from gossamer.auditing.shared_noise import proven_against
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

# δ = 1e-2: with 20,000 coins a bound gets far above what is proven, if it can.
SHORT = {"rounds": 20, "privacy.epsilon": 1.0, "privacy.delta": 1e-2, "privacy.noise.source": "seeded"}


def outlined(recipe: str = "quickstart", **changes: Any) -> Any:
    """Seeded, and of the quickstart only twenty rounds, unless `changes` say otherwise."""
    short = SHORT if recipe == "quickstart" else {"privacy.noise.source": "seeded"}
    return Plan.of(resolve(recipes.read(recipe), {**short, **dotted(changes)}))


def on_axes(o: Any, places: int | None = None) -> Parts:
    return assemble(Plan.of(canaries.on_dirac_records(o.asked, o.privacy, places)))


def verdict_of(attack: Any, o: Any, runs: int | None = None, observer: str = "all") -> verdicts.Verdict:
    seen, _ = proven_against(o.privacy, observer_of(observer, o.topology))
    figures = seen.figures()
    limits = verdicts.promised(figures, o.config.mode, seen.trade_off())
    return verdicts.try_until_decided(attack, figures["delta"], 0.999, limits, runs or attack.runs)[1]


def figure(verdict: verdicts.Verdict, name: str) -> float:
    return next(bound.epsilon for bound in verdict.bounds if bound.name == name)
