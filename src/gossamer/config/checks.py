"""The configuration that runs, and the refusals that need more than one key.

Refusals that need more than one key are rows of a table: refused or not, key, value, problem, remedy. `check` goes
through all of them for the configuration that runs (a baseline runs another than was asked for). What one method alone
cannot be combined with is in that method's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gossamer.accounting.observers import RECORD
from gossamer.config.methods import PRESETS, preset_of
from gossamer.config.schema import Noise, RunConfig
from gossamer.data.own import Memory, OwnRecords
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError, compose
from gossamer.mechanism.clipping import NoClip
from gossamer.mechanism.noise.base import NoNoise
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.models.networks import Lookup
from gossamer.topology.kinds import Complete

Row = tuple[bool, str, object, str, str]  # refused?, key, value, problem, remedy
_ADD_UP = "they add up in the sum of all nodes while the noise does not, which is not priced"


def effective(config: RunConfig) -> RunConfig:
    """The configuration that runs. It is never written: the run directory holds what was asked for.

    A baseline is what a method is compared with, from its own configuration: other parts, the same everything else.

    non-private        the same algorithm without clip and noise; lots are drawn as before
    no-communication   every node alone, privacy as it is
    central            all records on one node: DP-SGD with the same (ε, δ) and expected number of records a round
    """
    privacy = config.privacy
    changes: dict[str, Any]
    if config.baseline == "non-private":
        noise = privacy.noise.model_copy(update={"schedule": NoNoise(), "multiplier": None})
        change = {"clip": NoClip(), "noise": noise, "claim": "none", "epsilon": None}
        changes = {"privacy": privacy.model_copy(update=change)}
    elif config.baseline == "no-communication":
        changes = {
            "weighting": "uniform",  # a node alone has no sum to weight, only its own step size to spoil
            "privacy": privacy.model_copy(update={"noise": _own_noise(privacy.noise)}),
        }
        if alone := preset_of(config.algorithm.kind).get("alone"):  # what the method does without the others
            changes["algorithm"] = replace(config.algorithm, **alone)
    elif config.baseline == "central":
        # One node, so one budget: the strictest of those asked for.
        change = {
            "epsilon": _least(privacy.epsilon), "delta": _least(privacy.delta), "noise": _own_noise(privacy.noise)
        }  # fmt: skip
        changes = {"nodes": 1, "topology": Complete(), "privacy": privacy.model_copy(update=change)}
    else:
        return config
    return config.model_copy(update={**changes, "name": f"{config.name}+{config.baseline}"})


def _own_noise(noise: Noise) -> Noise:
    """Masks cancel between nodes; a node alone has its own noise."""
    return noise.model_copy(update={"family": Gaussian()}) if noise.family.cancels else noise


def _least(value: float | list[float] | None) -> float | None:
    return min(value) if isinstance(value, list) else value


def check(config: RunConfig) -> None:
    """Raise the first refusal that applies."""
    labels_are_declared(config)
    refuse(row for rows in (_parts, _unit, _private_evaluation, _data) for row in rows(config))


def refuse(rows: Iterable[Row]) -> None:
    """Raise the first row that is refused."""
    for refused, key, value, problem, remedy in rows:
        if refused:
            raise UserError(compose(key, value, problem, remedy))


def labels_are_declared(config: RunConfig) -> None:
    """Refuse private labels that are not declared: they decide the model's size, which everyone sees."""
    data = config.data
    if not is_private(config) or not isinstance(data, OwnRecords):
        return
    if data.classes is None and data.task != "regression" and not data.multi_label:
        raise UserError(
            "data.classes is not set: which labels occur is private until you declare it; set their number or list "
            'them, for example data.classes = 2 (or data.task = "regression").'
        )


def is_private(config: RunConfig) -> bool:
    """Records of the user's own, in a run that is to have a privacy figure."""
    return config.data.own and config.privacy.noise.kind.adds


def _parts(config: RunConfig) -> Iterator[Row]:
    """Refuse models, noises, clips and samplings that do not go together."""
    data, model, privacy, noise = config.data, config.model, config.privacy, config.privacy.noise
    kind, clip, sampling, centre = noise.kind, privacy.clip, privacy.sampling, privacy.centre
    sound = config.mode == "sound" and kind.adds
    if isinstance(data, Dirac) and not data.dense:  # records that are rows of a table
        rows, due = getattr(model, "rows", 0), data.per_holder
        unread = "cannot read data.kind = 'dirac', whose records are places in a table"
        yield not isinstance(model, Lookup), "model.kind", model.kind, unread, "use model.kind = 'lookup'"
        yield rows < due, "model.rows", rows, f"is fewer than the {due} of data.per_holder", f"use {due}"
    family, clips = ("privacy.noise.family.kind", noise.family.kind), ("privacy.clip.kind", clip.kind)
    named, claim = config.algorithm.kind, privacy.claim
    shaped = kind.adds and not kind.gaussian and kind.without_proof is None
    yield from [
        (claim != "none" and named not in PRESETS, "privacy.claim", claim,
         f"is the formula of a paper, and algorithm.kind = {named!r} is in none",
         "leave it out: what is proven holds without it"),
        (privacy.runs > 1 and (config.mode == "paper" or noise.multiplier is not None), "privacy.runs", privacy.runs,
         "shares a proven budget", 'leave out privacy.noise.multiplier and use mode = "sound"'),
        (centre is not None and not clip.stays, "privacy.centre", centre,
         f"needs a clip that stays the same, and privacy.clip.kind = {clip.kind!r} does not", "use 'constant'"),
        (shaped and clip.follows_records, *family,
         "does not go with privacy.clip.kind = 'quantile', which is for Gaussian noise",
         "use privacy.clip.kind = 'constant'"),
        (sound and kind.without_proof is not None, "privacy.noise.schedule.kind", noise.schedule.kind,
         f"has no proof ({kind.without_proof})",
         "use mode = \"paper\" to study it, or privacy.clip.kind = 'quantile' with constant noise"),
        (sound and not clip.enforced, *clips, "bounds no record's influence, so no ε can be proven",
         'use constant, decaying, normalised or quantile, or mode = "paper"'),
        (kind.cancels and (clip.follows_records or not clip.enforced), *clips,
         f"does not go with {family[0]} = {family[1]!r}: masks cancel only where all nodes have the same bound",
         "use 'constant', 'decaying' or 'sequence'"),
        (kind.cancels and noise.on != "gradient", "privacy.noise.on", noise.on,
         f"does not go with {family[0]} = {family[1]!r}: it is about sums over records", "use 'gradient'"),
    ]  # fmt: skip
    # A clip of whole lots is priced for lots drawn again in every round, and each node's own noise on sums.
    for key, value, right, unfit in (
        ("privacy.sampling.kind", sampling.kind, "'poisson', 'fixed-size' or 'full'", sampling.disjoint),
        (*family, "'gaussian'", kind.cancels),
        ("privacy.noise.on", noise.on, "'gradient'", noise.on != "gradient"),
        ("privacy.centre", centre, "of = 'record', which bounds each one", centre is not None),
    ):
        problem = f"does not go with {key} = {value!r}"
        yield clip.of == "lot" and unfit, "privacy.clip.of", "lot", problem, f"use {right}"


def _unit(config: RunConfig) -> Iterator[Row]:
    """Refuse what a protected person or node could move by more than one record's bound."""
    privacy, data, noise, part = config.privacy, config.data, config.privacy.noise, config.data.partition
    several = privacy.max_sites > 1
    # Without noise there is no promise.
    if privacy.protects.kind == RECORD or (privacy.centre is None and not noise.kind.adds):
        return
    node, sampling = privacy.unit == "node", privacy.sampling.kind
    key, value = ("privacy.unit", "node") if node else ("privacy.unit.column", privacy.protects.column)
    drawn = data.own and (data.train_rows is not None or data.held_out is not None)
    for refused, problem, remedy in [
        (noise.on == "iterate", "privacy.noise.on = 'iterate', which has no bound on it", "use 'gradient'"),
        (privacy.centre is not None, "privacy.centre, a mean that is priced for records", "leave it out"),
        (node and config.evaluation.private is not None, "evaluation.private", "use a public hold-out"),
        (drawn, "data.train_rows or data.held_out, which take rows by the number of all", "leave them out"),
        (part.most_copies(2) > 1, f"the copies of data.partition.kind = {part.kind!r}", "use 'even' or 'owner'"),
        (node and sampling != "full", "privacy.sampling.kind", f"use 'full', not {sampling!r}"),
        (node and privacy.clip.follows_records, "privacy.clip.kind: one unit has no quantile", "use 'constant'"),
        (node and config.weighting == "size", "weighting = 'size', which shows it", "use 'uniform'"),
    ]:  # fmt: skip
        yield refused, key, value, f"does not go with {problem}", remedy
    cancelled = f"with privacy.noise.family.kind = {noise.family.kind!r} {_ADD_UP}"
    for refused, why, remedy in (
        (config.baseline == "central", "baseline = 'central' would count the parts as several persons", "1"),
        (noise.kind.cancels, cancelled, "'gaussian'"),
    ):
        problem = f"has a person at several nodes, and {why}"
        yield several and refused, "privacy.unit.max_sites", privacy.max_sites, problem, f"use {remedy}"


def _private_evaluation(config: RunConfig) -> Iterator[Row]:
    """Figures on private records take a share of ε, where that is sound."""
    privacy, noise, data, sampling = (
        config.privacy,
        config.privacy.noise,
        config.data,
        config.privacy.sampling,
    )
    adds, paper = noise.kind.adds, config.mode == "paper"
    plain = noise.kind.gaussian and not noise.kind.cancels
    private = config.evaluation.private
    drawn = data.held_out is not None or data.train_rows is not None
    sized = sampling.needs_true_sizes or (sampling.disjoint and not sampling.independent)
    one = isinstance(privacy.epsilon, float) and isinstance(privacy.delta, float)
    on_gradients = plain and noise.on == "gradient" and privacy.centre is None
    for refused, problem, remedy in [
        (not data.own or data.test_is_public,
         "pays for figures on private records, and there is a public hold-out here, which costs nothing",
         "leave it out"),
        (drawn, "keeps records out by what each of them is, and data.held_out or data.train_rows draws among all",
         "leave it out"),
        (sized, f"makes the number of training records private, and privacy.sampling.kind = {sampling.kind!r} needs it",
         "use 'poisson' or 'full'"),
        (adds and paper, "is counted by no paper's formula", 'use mode = "sound"'),
        (adds and not one, "is a share of one ε for all nodes", "set one privacy.epsilon and one privacy.delta"),
        (adds and not on_gradients, "goes with Gaussian noise on gradients, without privacy.centre",
         "use privacy.noise.family.kind = 'gaussian'"),
    ]:  # fmt: skip
        yield private is not None and refused, "evaluation.private", private, problem, remedy


def _data(config: RunConfig) -> Iterator[Row]:
    """Refuse what of the records would leave unpaid, or be counted for too little."""
    privacy, data, noise, part = config.privacy, config.data, config.privacy.noise, config.data.partition
    adds, clip, copied, steps = noise.kind.adds, privacy.clip, part.most_copies(2) > 1, data.private_steps
    sound = config.mode == "sound" and adds
    yield from [
        (config.evaluation.diagnostics and config.runtime.kind == "processes", "evaluation.diagnostics", True,
         "is not private and must not travel between processes",
         "leave it out, or use runtime.kind = 'simulator'"),
        (sound and data.pca is not None and data.pca_from in ("train", data.kind), "data.pca_from", data.pca_from,
         "fits components on the private records, which nothing pays for",
         "name a public set of the same width, for example 'fashion-mnist' for 'mnist', or use mode = \"paper\""),
        (data.class_weights is not None and adds and not clip.enforced, "data.class_weights", None,
         f"multiplies gradients, and privacy.clip.kind = {clip.kind!r} bounds none of them afterwards",
         "use 'constant'"),
    ]  # fmt: skip
    cancelled = f"with privacy.noise.family.kind = {noise.family.kind!r} {_ADD_UP}"
    for refused, why, remedy in [
        (data.own, "of records of your own the draw follows their number, which is private", "'even' or 'sizes'"),
        (config.baseline == "central", "baseline = 'central' would put them into the same sums", "'even'"),
        (noise.kind.cancels, cancelled, "'gaussian'"),
    ]:  # fmt: skip
        problem = f"puts copies of a record on several nodes, and {why}"
        yield adds and copied and refused, "data.partition.kind", part.kind, problem, f"use {remedy}"
    drawn = "draws among your own records by their number: with one more, others would train and no ε would hold"
    for key, rows in (("data.held_out", data.held_out), ("data.train_rows", data.train_rows)):
        refused = rows is not None and data.own and sound and privacy.adjacency == "add-remove"
        remedy = "use data.test, evaluation.private or privacy.adjacency = 'replace-one'"
        yield refused, key, rows, drawn, remedy
    accounts = f"is of an account, which files of your own records have, and data.kind = {data.kind!r} has none"
    for key, value in (("privacy.cap", privacy.cap), ("privacy.account", privacy.account)):
        refused = value is not None and (not data.own or isinstance(data, Memory))
        yield refused, key, value, accounts, "leave it out, or give the records as a file"
    # Before the first round: what is computed takes a share of ε.
    share, paper = privacy.preprocessing, config.mode == "paper"
    plain, alone = noise.kind.gaussian and not noise.kind.cancels, config.baseline == "no-communication"
    remedy = "ask for data.standardise, data.class_weights = 'private' or data.pca_from = 'private', or leave it out"
    yield share is not None and not steps, "privacy.preprocessing", share, "pays for nothing", remedy
    for refused, why, remedy in [
        (share is None, "", "set privacy.preprocessing, the share of ε that pays for it, for example 0.2"),
        (paper, ", which no paper's formula counts", 'use mode = "sound", or leave it out'),
        (privacy.epsilon is None, " for a share of privacy.epsilon, which is not set", "set it"),
        (not plain, " with Gaussian noise alone", "use privacy.noise.family.kind = 'gaussian'"),
        (privacy.centre is not None, ", which privacy.centre does not go with", "leave one of them out"),
        (alone, " of all nodes, and baseline = 'no-communication' has every node alone", "leave it out"),
    ]:  # fmt: skip
        problem = f"is computed from the private records{why}"
        yield bool(steps) and adds and refused, " and ".join(steps), None, problem, remedy
