"""Every refusal that needs more than one key: small functions, each with one sentence.

`check` runs them all on the configuration that runs (a baseline runs another than was asked for). What a method
cannot be combined with is said in its own folder, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.config.schema import RunConfig
from gossamer.data.memory import Memory
from gossamer.data.own import OwnRecords
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.models.networks import Lookup


def a_unit_has_a_price(config: RunConfig) -> None:
    """What moves by one record's bound, and no more, where a person or a node is protected: else it is refused."""
    privacy, data, unit = config.privacy, config.data, config.privacy.unit
    if unit == "record":
        return
    key, value = (
        ("privacy.unit", "node") if unit == "node" else ("privacy.unit.column", privacy.protects.column)
    )
    sites = ("privacy.unit.max_sites", privacy.max_sites, "has a person at several nodes, and")
    noise, sampling, clip = privacy.noise, privacy.sampling, privacy.clip
    refused: tuple[tuple[bool, str, str], ...] = (
        (
            noise.on == "iterate",
            "does not go with privacy.noise.on = 'iterate', which has no bound on it",
            "use 'gradient'",
        ),
        (
            privacy.centre is not None,
            "does not go with privacy.centre, a mean that is priced for records",
            "leave it out",
        ),
        (
            unit == "node" and config.evaluation.private is not None,
            "does not go with evaluation.private: one node's records are one unit, of which noise leaves nothing",
            "use a public hold-out",
        ),
        (
            data.own and (data.train_rows is not None or data.held_out is not None),
            "does not go with data.train_rows or data.held_out on records of your own: which rows they take follows "
            "the number of all",
            "leave them out",
        ),
        (
            data.partition.most_copies(2) > 1,
            f"does not go with data.partition.kind = {data.partition.kind!r}, which puts copies of records on several "
            "nodes",
            "use 'even' or 'owner'",
        ),
        (
            unit == "node" and sampling.kind != "full",
            "has one unit at a node, which is in every draw",
            f"use privacy.sampling.kind = 'full', not {sampling.kind!r}",
        ),
        (
            unit == "node" and clip.follows_records,
            "has no quantile to follow",
            f"use privacy.clip.kind = 'constant', not {clip.kind!r}",
        ),
        (
            unit == "node" and config.weighting == "size",
            "hides how many records a node has",
            "use weighting = 'uniform'",
        ),
    )
    if privacy.centre is None and not noise.kind.adds:  # without noise nothing is promised
        return
    for wrong, problem, remedy in refused:
        if wrong:
            raise UserError(problem, key=key, value=value, remedy=remedy)
    if privacy.max_sites > 1 and config.baseline == "central":
        raise UserError(
            f"{sites[2]} baseline = 'central' would count the parts as several persons",
            key=sites[0], value=sites[1], remedy="use max_sites = 1",
        )  # fmt: skip
    if privacy.max_sites > 1 and noise.kind.cancels:
        raise UserError(
            f"{sites[2]} with privacy.noise.family.kind = {noise.family.kind!r} they add up in the sum of all nodes "
            "while the noise does not, which is not priced",
            key=sites[0], value=sites[1], remedy="use 'gaussian'",
        )  # fmt: skip


Check = Callable[[RunConfig], None]


def check(config: RunConfig) -> None:
    for refuse in CHECKS:
        refuse(config)


def tuning_shares_a_proven_budget(config: RunConfig) -> None:
    if config.privacy.runs > 1 and (config.mode == "paper" or config.privacy.noise.multiplier is not None):
        raise UserError(
            "shares a proven budget",
            key="privacy.runs",
            value=config.privacy.runs,
            remedy='leave out privacy.noise.multiplier and use mode = "sound"',
        )


def centre_needs_a_clip_that_stays(config: RunConfig) -> None:
    if config.privacy.centre is not None and not config.privacy.clip.stays:
        raise UserError(
            f"needs a clip that stays the same, and privacy.clip.kind = {config.privacy.clip.kind!r} does not",
            key="privacy.centre",
            value=config.privacy.centre,
            remedy="use 'constant'",
        )


def lattice_needs_a_plain_gaussian(config: RunConfig) -> None:
    noise, clip = config.privacy.noise, config.privacy.clip
    plain = noise.kind.gaussian and noise.on == "gradient" and clip.enforced and not clip.follows_records
    if noise.arithmetic == "lattice" and not plain:
        raise UserError(
            "needs Gaussian noise and a clip that is enforced and follows no data (constant, decaying, sequence or "
            "normalised)",
            key="privacy.noise.arithmetic",
            value="lattice",
            remedy="use 'float' here",
        )


def secret_lots_are_priced_for_real_numbers(config: RunConfig) -> None:
    sampling = config.privacy.sampling
    if config.privacy.noise.arithmetic == "lattice" and sampling.disjoint and sampling.independent:
        raise UserError(
            f"is not made for privacy.sampling.kind = {sampling.kind!r}, whose price is proven for Gaussian noise on "
            "real numbers",
            key="privacy.noise.arithmetic",
            value="lattice",
            remedy="use 'float', or privacy.sampling.kind = 'poisson'",
        )


def other_noises_need_a_plain_clip(config: RunConfig) -> None:
    noise = config.privacy.noise
    shaped = noise.kind.adds and not noise.kind.gaussian and noise.kind.without_proof is None
    if shaped and (config.privacy.clip.follows_records or noise.arithmetic == "lattice"):
        raise UserError(
            "does not go with privacy.clip.kind = 'quantile' or privacy.noise.arithmetic = 'lattice', which are for "
            "Gaussian noise",
            key="privacy.noise.family.kind",
            value=noise.family.kind,
            remedy="use privacy.clip.kind = 'constant' and 'float'",
        )


def cancelling_noise_needs_a_plain_clip(config: RunConfig) -> None:
    noise, clip = config.privacy.noise, config.privacy.clip
    if noise.kind.cancels and (clip.follows_records or not clip.enforced):
        raise UserError(
            f"does not go with privacy.noise.family.kind = {noise.family.kind!r}: masks cancel only where all nodes "
            "have the same bound",
            key="privacy.clip.kind",
            value=clip.kind,
            remedy="use 'constant', 'decaying' or 'sequence'",
        )


def cancelling_noise_is_on_gradients_in_floats(config: RunConfig) -> None:
    noise = config.privacy.noise
    if noise.kind.cancels and noise.on != "gradient":
        raise UserError(
            f"does not go with privacy.noise.family.kind = {noise.family.kind!r}: it is about sums over records",
            key="privacy.noise.on",
            value=noise.on,
            remedy="use 'gradient'",
        )
    if noise.kind.cancels and noise.arithmetic != "float":
        raise UserError(
            f"is not made for privacy.noise.family.kind = {noise.family.kind!r}, whose masks are no whole steps of a "
            "lattice",
            key="privacy.noise.arithmetic",
            value=noise.arithmetic,
            remedy="use 'float'",
        )


def whole_lots_are_clipped_in_plain_runs(config: RunConfig) -> None:
    """What a clip of whole lots is priced for: lots drawn anew, noise of each node's own on sums over records."""
    privacy, noise = config.privacy, config.privacy.noise
    if not privacy.clip.of_lot:
        return
    others = (
        (
            "privacy.sampling.kind",
            privacy.sampling.kind,
            "'poisson', 'fixed-size' or 'full'",
            privacy.sampling.disjoint,
        ),
        ("privacy.noise.family.kind", noise.family.kind, "'gaussian'", noise.kind.cancels),
        ("privacy.noise.on", noise.on, "'gradient'", noise.on != "gradient"),
        ("privacy.noise.arithmetic", noise.arithmetic, "'float'", noise.arithmetic != "float"),
    )
    for key, value, right, wrong in others:
        if wrong:
            raise UserError(
                f"does not go with {key} = {value!r}",
                key="privacy.clip.of",
                value="lot",
                remedy=f"use {right}",
            )
    if privacy.centre is not None:
        raise UserError(
            f"does not go with privacy.centre = {privacy.centre:g}, which needs a bound on each record",
            key="privacy.clip.of",
            value="lot",
            remedy="use of = 'record'",
        )


def _sound(config: RunConfig) -> bool:
    """Must there be a proof?"""
    return config.mode == "sound" and config.privacy.noise.kind.adds


def some_noises_have_no_proof(config: RunConfig) -> None:
    because = config.privacy.noise.kind.without_proof
    if _sound(config) and because is not None:
        raise UserError(
            f"has no proof ({because})",
            key="privacy.noise.schedule.kind",
            value=config.privacy.noise.schedule.kind,
            remedy="use mode = \"paper\" to study it, or privacy.clip.kind = 'quantile' with constant noise",
        )


def copies_are_priced_together(config: RunConfig) -> None:
    """Copies on k nodes cost k nodes' releases: where these are not apart from each other, that is refused."""
    noise, part = config.privacy.noise, config.data.partition
    if not noise.kind.adds or part.most_copies(2) == 1:
        return
    refused = (
        (
            config.data.own,
            "of records of your own the draw follows their number, which is private",
            "use 'even' or 'sizes'",
        ),
        (
            config.baseline == "central",
            "baseline = 'central' would put them into the same sums, which is not priced",
            "use 'even'",
        ),
        (
            noise.kind.cancels,
            f"with privacy.noise.family.kind = {noise.family.kind!r} they add up in the sum of all nodes while the "
            "noise does not, which is not priced",
            "use 'gaussian', or 'even' or 'sizes'",
        ),
    )
    for wrong, problem, remedy in refused:
        if wrong:
            raise UserError(
                f"puts copies of a record on several nodes, and {problem}",
                key="data.partition.kind",
                value=part.kind,
                remedy=remedy,
            )


def components_of_private_records_are_not_paid_for(config: RunConfig) -> None:
    origin = config.data.pca_from
    if _sound(config) and config.data.pca is not None and origin in ("train", config.data.kind):
        raise UserError(
            "fits components on the private records, which nothing pays for",
            key="data.pca_from",
            value=origin,
            remedy="name a public set of the same width, for example 'fashion-mnist' for 'mnist', or use mode = "
            '"paper"',
        )


def preprocessing_is_paid_for(config: RunConfig) -> None:
    """Whatever is found on the private records before the first round takes a share of ε."""
    privacy, asked = config.privacy, config.data.private_steps
    share, noise = privacy.preprocessing, privacy.noise
    if share is not None and not asked:
        raise UserError(
            "pays for nothing",
            key="privacy.preprocessing",
            value=share,
            remedy="ask for data.standardise, data.class_weights = 'private' or data.pca_from = 'private', or leave it "
            "out",
        )
    if not asked or not noise.kind.adds:
        return
    plain = noise.kind.gaussian and not noise.kind.cancels and noise.arithmetic == "float"
    refused = (
        (share is None, "", "set privacy.preprocessing, the share of ε that pays for it, for example 0.2"),
        (
            config.mode == "paper",
            ", which no paper's formula counts",
            'use mode = "sound", or leave it out',
        ),
        (privacy.epsilon is None, " for a share of privacy.epsilon, which is not set", "set it"),
        (
            not plain or privacy.centre is not None,
            ", which goes with Gaussian noise in floats and without privacy.centre",
            "use privacy.noise.family.kind = 'gaussian'",
        ),
        (
            config.baseline == "no-communication",
            " of all nodes, and baseline = 'no-communication' has every node alone",
            "leave it out",
        ),
    )
    for wrong, problem, remedy in refused:
        if wrong:
            raise UserError(
                f"is found on the private records{problem}", key=" and ".join(asked), remedy=remedy
            )


def class_weights_come_before_the_clip(config: RunConfig) -> None:
    """They scale a record's gradient: where nothing bounds it afterwards, no bound that was believed still holds."""
    weights, clip = config.data.class_weights, config.privacy.clip
    if weights is not None and config.privacy.noise.kind.adds and not clip.enforced:
        raise UserError(
            f"multiplies gradients, and privacy.clip.kind = {clip.kind!r} bounds none of them afterwards",
            key="data.class_weights",
            remedy="use 'constant'",
        )


def evaluation_is_paid_for(config: RunConfig) -> None:
    """Figures on private records: where they are sound, and where there is something to pay with."""
    share, privacy, data = config.evaluation.private, config.privacy, config.data
    if share is None:
        return
    noise, sampling = privacy.noise, privacy.sampling
    drawn = next((key for key in ("held_out", "train_rows") if getattr(data, key) is not None), None)
    sized = sampling.needs_true_sizes or (sampling.disjoint and not sampling.independent)
    plain = noise.kind.gaussian and not noise.kind.cancels and noise.on == "gradient"
    refused: tuple[tuple[bool, str, str], ...] = (
        (
            not data.own or data.test_is_public,
            "pays for figures on private records, and there is a public hold-out here, which costs nothing",
            "leave it out",
        ),
        (
            drawn is not None,
            f"keeps records out by what each of them is, and data.{drawn} draws among all",
            "leave it out",
        ),
        (
            sized,
            f"makes the number of training records private, and privacy.sampling.kind = {sampling.kind!r} needs it",
            "use 'poisson' or 'full'",
        ),
        (
            noise.kind.adds and config.mode == "paper",
            "is counted by no paper's formula",
            'use mode = "sound"',
        ),
        (
            noise.kind.adds and not (isinstance(privacy.epsilon, float) and isinstance(privacy.delta, float)),
            "is a share of one ε for all nodes",
            "set one privacy.epsilon and one privacy.delta",
        ),
        (
            noise.kind.adds and not (plain and noise.arithmetic == "float" and privacy.centre is None),
            "goes with Gaussian noise on gradients, in floats and without privacy.centre",
            "use privacy.noise.family.kind = 'gaussian'",
        ),
    )
    for wrong, problem, remedy in refused:
        if wrong:
            raise UserError(problem, key="evaluation.private", value=share, remedy=remedy)


def which_rows_train_follows_no_number(config: RunConfig) -> None:
    """Rows that are drawn among all of them follow their number: with one more record, others would be trained on."""
    own = config.data.own and _sound(config) and config.privacy.adjacency == "add-remove"
    for key in ("held_out", "train_rows"):
        if own and (value := getattr(config.data, key)) is not None:
            raise UserError(
                "draws among your own records by their number: with one more, others would train and no ε would hold",
                key=f"data.{key}",
                value=value,
                remedy="use data.test, evaluation.private or privacy.adjacency = 'replace-one'",
            )


def a_proof_needs_a_bound(config: RunConfig) -> None:
    clip = config.privacy.clip
    if _sound(config) and not clip.enforced:
        raise UserError(
            "bounds no record's influence, so no ε can be proven",
            key="privacy.clip.kind",
            value=clip.kind,
            remedy='use constant, decaying, normalised or quantile, or mode = "paper"',
        )


def places_need_a_table(config: RunConfig) -> None:
    """Records that are places in a table need a table that has them."""
    if not isinstance(config.data, Dirac) or config.data.dense:
        return
    if not isinstance(config.model, Lookup):
        raise UserError(
            "cannot read data.kind = 'dirac', whose records are places in a table",
            key="model.kind",
            value=config.model.kind,
            remedy="use model.kind = 'lookup'",
        )
    places, rows = config.data.per_holder, config.model.rows
    if rows < places:
        raise UserError(
            f"is fewer than the {places} places of data.per_holder",
            key="model.rows",
            value=rows,
            remedy=f"use {places}",
        )


def labels_are_declared(config: RunConfig) -> None:
    """What the labels can be decides the model's size, which everyone sees: so it must not be read off the records."""
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


def diagnostics_stay_here(config: RunConfig) -> None:
    if config.evaluation.diagnostics and config.runtime.kind == "processes":
        raise UserError(
            "is not private and must not travel between processes",
            key="evaluation.diagnostics",
            value=True,
            remedy="leave it out, or use runtime.kind = 'simulator'",
        )


def a_cap_is_on_own_records(config: RunConfig) -> None:
    if config.privacy.cap is not None and not config.data.own:
        raise UserError(
            f"is about all runs on the same records of your own, and data.kind = {config.data.kind!r} is public: "
            "nothing adds up there",
            key="privacy.cap",
            value=config.privacy.cap,
            remedy="leave it out",
        )
    if config.privacy.cap is not None and isinstance(config.data, Memory):
        raise UserError(
            "is kept on file next to the records, and data.kind = 'memory' has no file",
            key="privacy.cap",
            value=config.privacy.cap,
            remedy="give the records as one, or leave it out",
        )


CHECKS: tuple[Check, ...] = (
    diagnostics_stay_here,
    labels_are_declared,
    places_need_a_table,
    tuning_shares_a_proven_budget,
    centre_needs_a_clip_that_stays,
    lattice_needs_a_plain_gaussian,
    secret_lots_are_priced_for_real_numbers,
    other_noises_need_a_plain_clip,
    some_noises_have_no_proof,
    copies_are_priced_together,
    a_unit_has_a_price,
    components_of_private_records_are_not_paid_for,
    preprocessing_is_paid_for,
    class_weights_come_before_the_clip,
    evaluation_is_paid_for,
    which_rows_train_follows_no_number,
    a_proof_needs_a_bound,
    a_cap_is_on_own_records,
    cancelling_noise_needs_a_plain_clip,
    cancelling_noise_is_on_gradients_in_floats,
    whole_lots_are_clipped_in_plain_runs,
)
