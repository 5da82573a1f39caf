"""Methods with a shared public model (`without-replacement`): what their configuration means for privacy.

Lemma 4 bounds what a record can move in a write over all lots since the node's last: the distance of one step,
2 η L / b, if every step is non-expansive. Its conditions are checked here, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from gossamer.config.checks import Row
from gossamer.config.schema import RunConfig
from gossamer.mechanism.clipping import extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.methods import claims
from gossamer.methods.claims import Claim, Draws
from gossamer.methods.without_replacement.algorithm import LOOKING


@dataclass(frozen=True)
class Lemma4:
    """A multiplier here is noise std over η B √C / b: what adding or removing a record moves in all C classes together.

    The paper prices one class at 2 η L / b, L = 1 + λR: `claim` and `multiplier` translate.
    """

    classes: int
    lipschitz: float  # the paper's L
    bound: float  # B, the largest norm of a record
    flags: tuple[str, ...]

    def covers(self, noise: NoiseKind) -> bool:
        return noise.exponent == 2.0 and not noise.truncated

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        sigma = factor * extremes(run.shape, draws).least * self.bound * math.sqrt(self.classes)
        visits = run.sampling.visits(rate, draws)
        claim = claims.without_replacement(sigma, 2 * self.lipschitz, delta, visits)
        return Claim(claim.epsilon, claim.reference, (*claim.flags, *self.flags))

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        visits = run.sampling.visits(rate, run.draws)
        sigma = claims.classical_gaussian_sigma(epsilon / visits, delta / visits, 2 * self.lipschitz)
        return sigma / self.bound / math.sqrt(self.classes), None


def lemma4_of(config: RunConfig, classes: int | None) -> Lemma4:
    """The lemma's constants, and the flags of its claim."""
    bound, decay = record_bound(config), config.algorithm.regularisation
    lipschitz = 1 + decay * (config.algorithm.radius or 0.0)
    flags: tuple[str, ...] = ()
    if not _only_writes(config):
        flags = claims.lemma4_flags(largest_step(config), 1 + decay)
    if classes and classes > 1:
        flags += (
            f"the claim counts one of the {classes} one-vs-all models; all of them are learned from the same records",
        )
    if bound > 1:
        flags += (f"the claim takes records for unit vectors; with the bias outside they have norm {bound:.4g}",)
    return Lemma4(classes or 1, lipschitz, bound, flags)


def record_bound(config: RunConfig) -> float:
    """B: what records are scaled to; without that, the paper's 1."""
    bound = config.privacy.clip.record_bound
    return bound if math.isfinite(bound) else 1.0


def _only_writes(config: RunConfig) -> bool:
    """Does every turn write? Then there are no local steps, and nothing that could expand."""
    return bool(config.algorithm.controller == "global")


def decides_on_raw_losses(config: RunConfig) -> bool:
    return config.algorithm.controller in LOOKING and config.algorithm.observes == "raw"


def largest_step(config: RunConfig) -> float:
    """Of the whole schedule, its end included."""
    return extremes(config.algorithm.step_sizes(config.rounds), config.rounds + 1).largest


def notes(config: RunConfig) -> list[str]:
    notes = {
        "Controllers look at raw losses, and everyone sees who writes when: up to ε = ln 19 for a single choice at "
        "exploration 0.1.": decides_on_raw_losses(config),
        "The principal components were fitted on the private records; no figure covers that.": (
            config.data.pca is not None and config.data.pca_from == "train"
        ),
        "The accuracies are those of the nodes' own local models, whose last steps have no noise: they stay there.": (
            judged_local(config)
        ),
    }
    return [note for note, holds in notes.items() if holds]


def judged_local(config: RunConfig) -> str | None:
    """The option by which the nodes' un-noised local models are evaluated, if one does."""
    return next((key for key in ("scored", "controller") if getattr(config.algorithm, key) == "local"), None)


# What a shared model needs: a node that writes fetches the model from the last writer, so everyone must reach everyone;
# it is convex; and its reader has no other device or schedule.
_NEEDED: dict[str, tuple[Any, ...]] = {
    "model.kind": ("one-vs-all",),
    "topology.kind": ("complete",),
    "topology.dropout": (0,),
    "device": ("cpu",),
    "weighting": ("uniform",),
    "privacy.noise.schedule.kind": ("constant", "none"),
}


def refusals(config: RunConfig, classes: int | None) -> Iterator[Row]:
    """Lemma 4's conditions, and what the shared model cannot be combined with."""
    options, privacy, noisy = config.algorithm, config.privacy, config.privacy.noise.kind.adds
    kind, sampling, clip = ("algorithm.kind", options.kind), privacy.sampling, privacy.clip
    unfit = f"does not fit algorithm.kind = {options.kind!r}"
    wrapped = any(getattr(options, name) for name in ("momentum", "tail_average", "final_gossip"))
    problem = "has no rounds of gossip to put wrappers around"
    remedy = "leave out algorithm.momentum, .mixes, .tail_average, .final_gossip and privacy.centre"
    yield bool(wrapped or options.mixes != 1 or privacy.centre), *kind, problem, remedy
    for key, allowed in _NEEDED.items():
        value = attrgetter(key)(config)
        yield value not in allowed, key, value, unfit, f"use {' or '.join(map(repr, allowed))}"
    yield not classes, *kind, "needs classes", "use data with labels"
    yield from _judged_refusals(config)
    problem = f"{unfit}: noise is scaled to the largest record, and clipped steps need not be non-expansive"
    unbounded = math.isinf(clip.record_bound) and (noisy or clip.enforced)
    yield unbounded, "privacy.clip.kind", clip.kind, problem, "use 'record-ball'"
    other = noisy and type(privacy.noise.kind) is not Gaussian  # local models draw theirs themselves
    yield other, "privacy.noise.family.kind", privacy.noise.family.kind, unfit, "use 'gaussian'"
    how, remedy = (
        ("privacy.sampling.kind", sampling.kind),
        'use "one-pass", or algorithm.controller = "global"',
    )
    problem = "may take a record twice between two writes, which Lemma 4 does not cover"
    twice = not sampling.disjoint and (not _only_writes(config) or options.average)
    yield twice, *how, problem, f"{remedy} with algorithm.average = false"
    problem = "has lots of any size, and Lemma 4 needs non-expansive local steps on lots no larger than expected"
    yield sampling.disjoint and sampling.independent and not _only_writes(config), *how, problem, remedy
    raw = config.mode == "sound" and decides_on_raw_losses(config) and noisy
    problem = "lets everyone see choices made on raw losses, which no ε covers"
    yield raw, "algorithm.observes", "raw", problem, 'use "released", or mode = "paper" to study it'
    # Local steps must be non-expansive: μ η ≤ ½. The paper takes μ = 1 + λ; a logistic loss has B²/4 + λ.
    longest, most = largest_step(config), 1 / (2 * (record_bound(config) ** 2 / 4 + options.regularisation))
    expands = longest > most and not _only_writes(config) and config.mode == "sound" and noisy
    problem = f"breaks Lemma 4, whose steps are non-expansive up to 1/(2μ) = {most:.4g}"
    remedy = 'use at most that, or algorithm.controller = "global"'
    yield expands, "algorithm.lr", float(f"{longest:.4g}"), problem, remedy


def _judged_refusals(config: RunConfig) -> Iterator[Row]:
    """Figures of local models have no noise: they must not leave their nodes, and no ε covers them.

    The baseline whose nodes are alone has no others, and marks them.
    """
    noise, option = config.privacy.noise, judged_local(config)
    if option is None or not noise.kind.adds or noise.source != "system":
        return
    key = f"algorithm.{option}", "local"
    problem = "judges local models, whose figures have no noise and must not travel between processes"
    remedy = "use runtime.kind = 'simulator', or for science privacy.noise.source = 'seeded'"
    yield config.runtime.kind != "simulator", *key, problem, remedy
    problem = "judges local models, whose steps have no noise, so that no ε covers their accuracies"
    remedy = "use 'global', or to study them mode = \"paper\" or privacy.noise.source = 'seeded'"
    yield config.mode == "sound" and config.baseline != "no-communication", *key, problem, remedy
