"""Refusals that need more than one key, as rows of a table: refused or not, key, value, problem, remedy.

`check` goes through all of them for the configuration that runs (a baseline runs another than was asked for). What one
method alone cannot be combined with is in that method's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gossamer.config.schema import RunConfig
from gossamer.data.own import Memory, OwnRecords
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.models.networks import Lookup

Row = tuple[bool, str, object, str, str]  # refused?, key, value, problem, remedy


def check(config: RunConfig) -> None:
    """Raise the first refusal that applies."""
    labels_are_declared(config)
    rows = (_places, _noise, _clip_of_lot, _data, _unit, _preprocessing, _evaluation)
    refuse(row for rows_of in rows for row in rows_of(config))


def refuse(rows: Iterable[Row]) -> None:
    """Raise the first row that is refused."""
    for refused, key, value, problem, remedy in rows:
        if refused:
            raise UserError(problem, key=key, value=value, remedy=remedy)


def labels_are_declared(config: RunConfig) -> None:
    """Refuse private labels that are not declared: they decide the model's size, which everyone sees."""
    data = config.data
    if not isinstance(data, OwnRecords) or not is_private(config):
        return
    if data.classes is None and data.task != "regression" and not data.multi_label:
        raise UserError(
            "is not set: which labels occur is private until you declare it",
            key="data.classes",
            remedy='set their number or list them, for example data.classes = 2 (or data.task = "regression")',
        )


def is_private(config: RunConfig) -> bool:
    """Records of the user's own, in a run that is to have a privacy figure."""
    return config.data.own and config.privacy.noise.kind.adds


def _sound(config: RunConfig) -> bool:
    """Must there be a proof?"""
    return config.mode == "sound" and config.privacy.noise.kind.adds


def _places(config: RunConfig) -> Iterator[Row]:
    """Records that are rows of a table need a model that looks them up."""
    data, model = config.data, config.model
    if isinstance(data, Dirac) and not data.dense:
        problem = "cannot read data.kind = 'dirac', whose records are places in a table"
        yield not isinstance(model, Lookup), "model.kind", model.kind, problem, "use model.kind = 'lookup'"
        rows, due = getattr(model, "rows", 0), data.per_holder
        yield rows < due, "model.rows", rows, f"is fewer than the {due} of data.per_holder", f"use {due}"


def _noise(config: RunConfig) -> Iterator[Row]:
    """Which noise goes with which clip and sampling."""
    privacy, noise, clip = config.privacy, config.privacy.noise, config.privacy.clip
    kind = noise.kind
    family = f"privacy.noise.family.kind = {noise.family.kind!r}"
    yield (
        privacy.runs > 1 and (config.mode == "paper" or noise.multiplier is not None),
        "privacy.runs",
        privacy.runs,
        "shares a proven budget",
        'leave out privacy.noise.multiplier and use mode = "sound"',
    )
    yield (
        privacy.centre is not None and not clip.stays,
        "privacy.centre",
        privacy.centre,
        f"needs a clip that stays the same, and privacy.clip.kind = {clip.kind!r} does not",
        "use 'constant'",
    )
    shaped = kind.adds and not kind.gaussian and kind.without_proof is None
    yield (
        shaped and clip.follows_records,
        "privacy.noise.family.kind",
        noise.family.kind,
        "does not go with privacy.clip.kind = 'quantile', which is for Gaussian noise",
        "use privacy.clip.kind = 'constant'",
    )
    yield (
        _sound(config) and kind.without_proof is not None,
        "privacy.noise.schedule.kind",
        noise.schedule.kind,
        f"has no proof ({kind.without_proof})",
        "use mode = \"paper\" to study it, or privacy.clip.kind = 'quantile' with constant noise",
    )
    yield (
        _sound(config) and not clip.enforced,
        "privacy.clip.kind",
        clip.kind,
        "bounds no record's influence, so no ε can be proven",
        'use constant, decaying, normalised or quantile, or mode = "paper"',
    )
    yield (
        kind.cancels and (clip.follows_records or not clip.enforced),
        "privacy.clip.kind",
        clip.kind,
        f"does not go with {family}: masks cancel only where all nodes have the same bound",
        "use 'constant', 'decaying' or 'sequence'",
    )
    yield (
        kind.cancels and noise.on != "gradient",
        "privacy.noise.on",
        noise.on,
        f"does not go with {family}: it is about sums over records",
        "use 'gradient'",
    )


def _clip_of_lot(config: RunConfig) -> Iterator[Row]:
    """A clip of whole lots is priced for lots drawn again in every round, and each node's own noise on sums."""
    privacy, noise = config.privacy, config.privacy.noise
    if not privacy.clip.of_lot:
        return
    lots = "'poisson', 'fixed-size' or 'full'"
    for key, value, right, refused in (
        ("privacy.sampling.kind", privacy.sampling.kind, lots, privacy.sampling.disjoint),
        ("privacy.noise.family.kind", noise.family.kind, "'gaussian'", noise.kind.cancels),
        ("privacy.noise.on", noise.on, "'gradient'", noise.on != "gradient"),
        (
            "privacy.centre",
            privacy.centre,
            "of = 'record', which bounds each one",
            privacy.centre is not None,
        ),
    ):
        yield refused, "privacy.clip.of", "lot", f"does not go with {key} = {value!r}", f"use {right}"


def _data(config: RunConfig) -> Iterator[Row]:
    """What of the records would leave unpaid, or be counted for too little."""
    privacy, data, noise, part = config.privacy, config.data, config.privacy.noise, config.data.partition
    evaluation, cap = config.evaluation, config.privacy.cap
    yield (
        evaluation.diagnostics and config.runtime.kind == "processes",
        "evaluation.diagnostics",
        True,
        "is not private and must not travel between processes",
        "leave it out, or use runtime.kind = 'simulator'",
    )
    copies = "puts copies of a record on several nodes, and"
    for refused, problem, remedy in (
        (
            data.own,
            "of records of your own the draw follows their number, which is private",
            "'even' or 'sizes'",
        ),
        (config.baseline == "central", "baseline = 'central' would put them into the same sums", "'even'"),
        (
            noise.kind.cancels,
            f"with privacy.noise.family.kind = {noise.family.kind!r} {_ADD_UP}",
            "'gaussian'",
        ),
    ):
        refused_copies = refused and noise.kind.adds and part.most_copies(2) > 1
        yield refused_copies, "data.partition.kind", part.kind, f"{copies} {problem}", f"use {remedy}"
    yield (
        _sound(config) and data.pca is not None and data.pca_from in ("train", data.kind),
        "data.pca_from",
        data.pca_from,
        "fits components on the private records, which nothing pays for",
        "name a public set of the same width, for example 'fashion-mnist' for 'mnist', or use mode = \"paper\"",
    )
    for key in ("held_out", "train_rows"):
        value = getattr(data, key)
        yield (
            value is not None and data.own and _sound(config) and privacy.adjacency == "add-remove",
            f"data.{key}",
            value,
            "draws among your own records by their number: with one more, others would train and no ε would hold",
            "use data.test, evaluation.private or privacy.adjacency = 'replace-one'",
        )
    yield (
        data.class_weights is not None and noise.kind.adds and not privacy.clip.enforced,
        "data.class_weights",
        None,
        f"multiplies gradients, and privacy.clip.kind = {privacy.clip.kind!r} bounds none of them afterwards",
        "use 'constant'",
    )
    for key, value in (("privacy.cap", cap), ("privacy.account", privacy.account)):
        yield (
            value is not None and (not data.own or isinstance(data, Memory)),
            key,
            value,
            f"is of an account, which files of your own records have, and data.kind = {data.kind!r} has none",
            "leave it out, or give the records as a file",
        )


_ADD_UP = "they add up in the sum of all nodes while the noise does not, which is not priced"


def _unit(config: RunConfig) -> Iterator[Row]:
    """Where a person or a node is protected, it must move nothing by more than one record's bound."""
    privacy, data, unit = config.privacy, config.data, config.privacy.unit
    noise, sampling, clip = privacy.noise, privacy.sampling, privacy.clip
    if unit == "record" or (
        privacy.centre is None and not noise.kind.adds
    ):  # without noise nothing is promised
        return
    node, part = unit == "node", data.partition
    key, value = ("privacy.unit", "node") if node else ("privacy.unit.column", privacy.protects.column)
    drawn = data.own and (data.train_rows is not None or data.held_out is not None)
    for refused, problem, remedy in (
        (noise.on == "iterate", "privacy.noise.on = 'iterate', which has no bound on it", "use 'gradient'"),
        (privacy.centre is not None, "privacy.centre, a mean that is priced for records", "leave it out"),
        (node and config.evaluation.private is not None, "evaluation.private", "use a public hold-out"),
        (drawn, "data.train_rows or data.held_out, which take rows by the number of all", "leave them out"),
        (
            part.most_copies(2) > 1,
            f"the copies of data.partition.kind = {part.kind!r}",
            "use 'even' or 'owner'",
        ),
        (node and sampling.kind != "full", "privacy.sampling.kind", f"use 'full', not {sampling.kind!r}"),
        (node and clip.follows_records, "privacy.clip.kind: one unit has no quantile", "use 'constant'"),
        (node and config.weighting == "size", "weighting = 'size', which shows it", "use 'uniform'"),
    ):
        yield refused, key, value, f"does not go with {problem}", remedy
    for refused, problem, remedy in (
        (config.baseline == "central", "baseline = 'central' would count the parts as several persons", "1"),
        (
            noise.kind.cancels,
            f"with privacy.noise.family.kind = {noise.family.kind!r} {_ADD_UP}",
            "'gaussian'",
        ),
    ):
        several = "privacy.unit.max_sites", privacy.max_sites
        yield (
            refused and privacy.max_sites > 1,
            *several,
            f"has a person at several nodes, and {problem}",
            f"use {remedy}",
        )


def _preprocessing(config: RunConfig) -> Iterator[Row]:
    """Whatever is computed from the private records before the first round takes a share of ε."""
    privacy, noise, steps = config.privacy, config.privacy.noise, config.data.private_steps
    share = privacy.preprocessing
    yield (
        share is not None and not steps,
        "privacy.preprocessing",
        share,
        "pays for nothing",
        "ask for data.standardise, data.class_weights = 'private' or data.pca_from = 'private', or leave it out",
    )
    if not steps or not noise.kind.adds:
        return
    plain = noise.kind.gaussian and not noise.kind.cancels
    alone = "no-communication"
    for refused, problem, remedy in (
        (share is None, "", "set privacy.preprocessing, the share of ε that pays for it, for example 0.2"),
        (config.mode == "paper", ", which no paper's formula counts", 'use mode = "sound", or leave it out'),
        (privacy.epsilon is None, " for a share of privacy.epsilon, which is not set", "set it"),
        (not plain, " with Gaussian noise alone", "use privacy.noise.family.kind = 'gaussian'"),
        (privacy.centre is not None, ", which privacy.centre does not go with", "leave one of them out"),
        (
            config.baseline == alone,
            f" of all nodes, and baseline = {alone!r} has every node alone",
            "leave it out",
        ),
    ):
        yield refused, " and ".join(steps), None, f"is computed from the private records{problem}", remedy


def _evaluation(config: RunConfig) -> Iterator[Row]:
    """Figures on private records: where they are sound, and where there is a budget to pay with."""
    share, privacy, data = config.evaluation.private, config.privacy, config.data
    if share is None:
        return
    noise, sampling = privacy.noise, privacy.sampling
    drawn = data.held_out is not None or data.train_rows is not None
    sized = sampling.needs_true_sizes or (sampling.disjoint and not sampling.independent)
    plain = noise.kind.gaussian and not noise.kind.cancels and noise.on == "gradient"
    plain = plain and privacy.centre is None
    adds, one = noise.kind.adds, isinstance(privacy.epsilon, float) and isinstance(privacy.delta, float)
    kind = f"privacy.sampling.kind = {sampling.kind!r}"
    public = "pays for figures on private records, and there is a public hold-out here, which costs nothing"
    rows = "keeps records out by what each of them is, and data.held_out or data.train_rows draws among all"
    gaussian = "goes with Gaussian noise on gradients, without privacy.centre"
    for refused, problem, remedy in (
        (not data.own or data.test_is_public, public, "leave it out"),
        (drawn, rows, "leave it out"),
        (
            sized,
            f"makes the number of training records private, and {kind} needs it",
            "use 'poisson' or 'full'",
        ),
        (adds and config.mode == "paper", "is counted by no paper's formula", 'use mode = "sound"'),
        (
            adds and not one,
            "is a share of one ε for all nodes",
            "set one privacy.epsilon and one privacy.delta",
        ),
        (adds and not plain, gaussian, "use privacy.noise.family.kind = 'gaussian'"),
    ):
        yield refused, "evaluation.private", share, problem, remedy
