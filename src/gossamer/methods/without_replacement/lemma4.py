"""Methods with a shared public model (`without-replacement`): what their configuration means for privacy.

Lemma 4 bounds what a record can move in a write over all lots since the node's last: the distance of one step,
2 η L / b, if every step is non-expansive. Its conditions are checked here, before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.accounting import claimed
from gossamer.accounting.claimed import Claim
from gossamer.config.algorithm import Algorithm
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError

KINDS = ("without-replacement", "with-replacement")
LOOKING = ("deep-q", "loss-threshold")  # controllers whose choice follows what they see


@dataclass(frozen=True)
class Lemma4:
    """A multiplier here is noise std over η B √C / b: what adding or removing a record moves in all C classes together.

    The paper prices one class at 2 η L / b, L = 1 + λR: `claim` and `multiplier` translate.
    """

    classes: int
    lipschitz: float  # the paper's L
    bound: float  # B, the largest norm of a record
    raw_decisions: bool  # the choice to write follows raw losses
    flags: tuple[str, ...]

    def claim(self, multiplier: float, delta: float, visits: float) -> Claim:
        sigma = multiplier * self.bound * math.sqrt(self.classes)
        found = claimed.without_replacement(sigma, 2 * self.lipschitz, delta, visits)
        return Claim(found.epsilon, found.reference, (*found.flags, *self.flags))

    def multiplier(self, epsilon: float, delta: float, visits: float) -> float:
        sigma = claimed.classical_gaussian_sigma(epsilon / visits, delta / visits, 2 * self.lipschitz)
        return sigma / self.bound / math.sqrt(self.classes)


def is_shared(config: RunConfig) -> bool:
    return config.algorithm.kind in KINDS


def lemma4_of(config: RunConfig, classes: int | None) -> Lemma4 | None:
    """The lemma's constants, its conditions enforced; None for methods without a shared model."""
    if not is_shared(config):
        return None
    options = config.algorithm
    _check(config, options, classes)
    bound = getattr(config.privacy.clip, "radius", 1.0)
    decay = options.regularisation
    lipschitz = 1 + decay * (options.radius or 0.0)
    raw = looks(config) and options.observes == "raw"
    flags: tuple[str, ...] = ()
    if options.controller != "global":  # without local steps there is nothing to expand
        longest = largest_step(config)
        flags = claimed.lemma4_sensitivity([longest], lipschitz, 1, 1 + decay)[1]
        # The paper takes μ = 1 + λ; a logistic loss of records of norm B is (B²/4 + λ)-smooth.
        most = 1 / (2 * (bound**2 / 4 + decay))
        if longest > most and config.mode == "sound" and config.privacy.noise.schedule.kind != "none":
            raise UserError(
                f"algorithm.lr = {longest:.4g} breaks Lemma 4, whose steps are non-expansive up to "
                f'1/(2μ) = {most:.4g}; use at most that, or algorithm.controller = "global".'
            )
    if classes and classes > 1:
        flags += (
            f"the claim counts one of the {classes} one-vs-all models; all of them are learned from the same records",
        )
    if bound > 1:
        flags += (
            f"the claim takes records for unit vectors; with the bias outside they have norm {bound:.4g}",
        )
    return Lemma4(classes or 1, lipschitz, bound, raw, flags)


def looks(config: RunConfig) -> bool:
    return config.algorithm.controller in LOOKING


def largest_step(config: RunConfig) -> float:
    lr = config.algorithm.lr
    if isinstance(lr, float):
        return lr
    return max(lr.start, lr.start * lr.decay if lr.power == 0 else 0.0)


def notes(config: RunConfig) -> list[str]:
    if not is_shared(config):
        return []
    found = []
    if looks(config) and config.algorithm.observes == "raw":
        found.append(
            "Controllers look at raw losses, and everyone sees who writes when: up to ε = ln 19 for a single choice at "
            "exploration 0.1."
        )
    if config.data.pca is not None and config.data.pca_from == "train":
        found.append("The principal components were fitted on the private records; no figure covers that.")
    if config.algorithm.scored == "local" or config.algorithm.controller == "local":
        found.append(
            "The accuracies are those of the nodes' own local models, whose last steps have no noise: they stay there."
        )
    return found


def _check(config: RunConfig, options: Algorithm, classes: int | None) -> None:
    kind, privacy = config.algorithm.kind, config.privacy
    if config.model.kind != "one-vs-all" or not classes:
        raise UserError(
            f"model.kind = {config.model.kind!r} does not fit algorithm.kind = {kind!r}, which needs classes and the "
            'convex model "one-vs-all".'
        )
    if config.topology.kind != "complete":
        raise UserError(
            f"topology.kind = {config.topology.kind!r} does not fit algorithm.kind = {kind!r}: whoever writes fetches "
            'the model from the last writer, so everyone must reach everyone; use "complete".'
        )
    if config.runtime.kind != "simulator":
        raise UserError(
            f"runtime.kind = {config.runtime.kind!r} does not carry the shared model of algorithm.kind = {kind!r}; "
            "use 'simulator'."
        )
    if config.device != "cpu":
        raise UserError(f"device = {config.device!r} is not made for algorithm.kind = {kind!r}; use 'cpu'.")
    if config.topology.dropout:
        raise UserError(
            f"topology.dropout = {config.topology.dropout} has no meaning for algorithm.kind = {kind!r}: leave it out."
        )
    if privacy.clip.kind not in ("record-ball", "none" if privacy.noise.schedule.kind == "none" else ""):
        raise UserError(
            f"privacy.clip.kind = {privacy.clip.kind!r} does not fit algorithm.kind = {kind!r}: noise is scaled to the "
            'largest record, and clipped steps need not be non-expansive; use "record-ball".'
        )
    if privacy.noise.schedule.kind not in ("constant", "none"):
        raise UserError(
            f"privacy.noise.schedule.kind = {privacy.noise.schedule.kind!r} does not fit algorithm.kind = {kind!r}; "
            'use "constant" or "none".'
        )
    if privacy.noise.family.kind != "gaussian":
        raise UserError(
            f"privacy.noise.family.kind = {privacy.noise.family.kind!r} is not made for algorithm.kind = {kind!r}; use "
            "'gaussian'."
        )
    if privacy.noise.arithmetic != "float":
        raise UserError(
            f"privacy.noise.arithmetic = {privacy.noise.arithmetic!r} is not made for algorithm.kind = {kind!r}; "
            "use 'float'."
        )
    if config.weighting != "uniform":
        raise UserError(
            f"weighting = {config.weighting!r} does not fit algorithm.kind = {kind!r}; use 'uniform'."
        )
    if privacy.sampling.kind != "one-pass" and (options.controller != "global" or options.average):
        raise UserError(
            f"privacy.sampling.kind = {privacy.sampling.kind!r} may take a record twice between two writes, which "
            'Lemma 4 does not cover; use "one-pass", or algorithm.controller = "global" with algorithm.average = false.'
        )
    if (
        config.mode == "sound"
        and looks(config)
        and options.observes == "raw"
        and (privacy.noise.schedule.kind != "none")
    ):
        raise UserError(
            'algorithm.observes = "raw" lets everyone see choices made on raw losses, which no ε covers; '
            'use "released", or mode = "paper" to study it.'
        )
