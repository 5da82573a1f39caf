"""Methods with a shared public model (`without-replacement`): what their configuration means for privacy.

Lemma 4 bounds what a record can move in a write over all lots since the node's last: the distance of one step,
2 η L / b, if every step is non-expansive. Its conditions are checked here, before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.accounting import claimed
from gossamer.accounting.claimed import Claim
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.clipping import extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.methods.claims import Draws

LOOKING = ("deep-q", "loss-threshold")  # controllers whose choice follows what they see


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
        found = claimed.without_replacement(sigma, 2 * self.lipschitz, delta, visits)
        return Claim(found.epsilon, found.reference, (*found.flags, *self.flags))

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        visits = run.sampling.visits(rate, run.count)
        sigma = claimed.classical_gaussian_sigma(epsilon / visits, delta / visits, 2 * self.lipschitz)
        return sigma / self.bound / math.sqrt(self.classes), None


def lemma4_of(config: RunConfig, classes: int | None) -> Lemma4:
    """The lemma's constants, and what must be said beside its claim."""
    bound, decay = record_bound(config), config.algorithm.regularisation
    lipschitz = 1 + decay * (config.algorithm.radius or 0.0)
    flags: tuple[str, ...] = ()
    if not _only_writes(config):
        flags = claimed.lemma4_flags(largest_step(config), 1 + decay)
    if classes and classes > 1:
        flags += (
            f"the claim counts one of the {classes} one-vs-all models; all of them are learned from the same records",
        )
    if bound > 1:
        flags += (
            f"the claim takes records for unit vectors; with the bias outside they have norm {bound:.4g}",
        )
    return Lemma4(classes or 1, lipschitz, bound, flags)


def record_bound(config: RunConfig) -> float:
    """B: what records are scaled to; without that, the paper's 1."""
    bound = config.privacy.clip.record_bound
    return bound if math.isfinite(bound) else 1.0


def _only_writes(config: RunConfig) -> bool:
    """Does every turn write? Then there are no local steps, and nothing that could expand."""
    return bool(config.algorithm.controller == "global")


def decides_on_raw_losses(config: RunConfig) -> bool:
    return looks(config) and config.algorithm.observes == "raw"


def looks(config: RunConfig) -> bool:
    return config.algorithm.controller in LOOKING


def largest_step(config: RunConfig) -> float:
    """Of the whole schedule, its end included."""
    return extremes(config.algorithm.step_sizes(config.rounds), config.rounds + 1).largest


def notes(config: RunConfig) -> list[str]:
    found = []
    if decides_on_raw_losses(config):
        found.append(
            "Controllers look at raw losses, and everyone sees who writes when: up to ε = ln 19 for a single choice at "
            "exploration 0.1."
        )
    if config.data.pca is not None and config.data.pca_from == "train":
        found.append("The principal components were fitted on the private records; no figure covers that.")
    if judged_local(config):
        found.append(
            "The accuracies are those of the nodes' own local models, whose last steps have no noise: they stay there."
        )
    return found


def judged_local(config: RunConfig) -> str | None:
    """The option by which the nodes' un-noised local models are evaluated, if one does."""
    return next((key for key in ("scored", "controller") if getattr(config.algorithm, key) == "local"), None)


def _check_processes(config: RunConfig) -> None:
    """Accuracies and means of local models have no noise: in several processes they would leave their nodes."""
    noise, key = config.privacy.noise, judged_local(config)
    if config.runtime.kind == "simulator" or key is None:
        return
    if noise.kind.adds and noise.source == "system":
        raise UserError(
            f"algorithm.{key} = 'local' judges local models, whose figures have no noise and must not travel "
            "between processes; use runtime.kind = 'simulator', or for science privacy.noise.source = 'seeded'."
        )


def _check_judged(config: RunConfig) -> None:
    """No ε covers figures of local models; the baseline whose nodes are alone has no others, and marks them."""
    noise, key = config.privacy.noise, judged_local(config)
    if key is None or config.mode != "sound" or config.baseline == "no-communication":
        return
    if noise.kind.adds and noise.source == "system":
        raise UserError(
            f"algorithm.{key} = 'local' judges local models, whose steps have no noise, so that no ε covers their "
            "accuracies; use 'global', or to study them mode = \"paper\" or privacy.noise.source = 'seeded'."
        )


def check(config: RunConfig, classes: int | None) -> None:
    """Lemma 4's conditions, and what the shared model cannot be combined with."""
    kind, privacy, noisy = config.algorithm.kind, config.privacy, config.privacy.noise.kind.adds
    asked = config.algorithm
    if asked.momentum or asked.mixes != 1 or asked.tail_average or asked.final_gossip or privacy.centre:
        raise UserError(
            f"algorithm.kind = {kind!r} has no rounds of gossip to put pieces around; leave out algorithm."
            "momentum, .mixes, .tail_average, .final_gossip and privacy.centre."
        )
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
    _check_processes(config)
    _check_judged(config)
    if config.device != "cpu":
        raise UserError(f"device = {config.device!r} is not made for algorithm.kind = {kind!r}; use 'cpu'.")
    if config.topology.dropout:
        raise UserError(
            f"topology.dropout = {config.topology.dropout} has no meaning for algorithm.kind = {kind!r}: leave it out."
        )
    if math.isinf(privacy.clip.record_bound) and (noisy or privacy.clip.enforced):
        raise UserError(
            f"privacy.clip.kind = {privacy.clip.kind!r} does not fit algorithm.kind = {kind!r}: noise is scaled to the "
            'largest record, and clipped steps need not be non-expansive; use "record-ball".'
        )
    if privacy.noise.schedule.kind not in ("constant", "none"):
        raise UserError(
            f"privacy.noise.schedule.kind = {privacy.noise.schedule.kind!r} does not fit algorithm.kind = {kind!r}; "
            'use "constant" or "none".'
        )
    if noisy and type(privacy.noise.kind) is not Gaussian:  # local models draw theirs themselves
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
    _check_lots(config)
    if config.mode == "sound" and decides_on_raw_losses(config) and noisy:
        raise UserError(
            'algorithm.observes = "raw" lets everyone see choices made on raw losses, which no ε covers; '
            'use "released", or mode = "paper" to study it.'
        )
    _check_step(config)


def _check_lots(config: RunConfig) -> None:
    sampling, asked = config.privacy.sampling, config.algorithm
    if not sampling.disjoint and (asked.controller != "global" or asked.average):
        raise UserError(
            f"privacy.sampling.kind = {sampling.kind!r} may take a record twice between two writes, which "
            'Lemma 4 does not cover; use "one-pass", or algorithm.controller = "global" with algorithm.average = false.'
        )
    if sampling.disjoint and sampling.independent and asked.controller != "global":
        raise UserError(
            f"privacy.sampling.kind = {sampling.kind!r} has lots of any size, and Lemma 4 needs local steps that are "
            'non-expansive, on lots no larger than expected; use "one-pass", or algorithm.controller = "global".'
        )


def _check_step(config: RunConfig) -> None:
    """Local steps must be non-expansive: μ η ≤ ½. The paper takes μ = 1 + λ; a logistic loss has B²/4 + λ."""
    if _only_writes(config) or config.mode != "sound" or not config.privacy.noise.kind.adds:
        return
    longest = largest_step(config)
    most = 1 / (2 * (record_bound(config) ** 2 / 4 + config.algorithm.regularisation))
    if longest > most:
        raise UserError(
            f"algorithm.lr = {longest:.4g} breaks Lemma 4, whose steps are non-expansive up to "
            f'1/(2μ) = {most:.4g}; use at most that, or algorithm.controller = "global".'
        )
