"""What peers cannot run, a sentence each: what needs everyone at once, one machine's files, or a stranger's code.

`training/plan.py` refuses what no run can be; this is what a run of separate sites cannot be besides.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.config.schema import RunConfig
from gossamer.data.own import OwnFile
from gossamer.errors import UserError
from gossamer.methods import method_of
from gossamer.models.networks import Own, Withheld

PUSH_SUM = "push-sum"
# Update rules whose sums survive messages that are lost, late or repeated, and sites that are away.
SURVIVES = (PUSH_SUM, "dsgd", "dsgt", "dinno", "km")
_WHY_NOT = {"without-replacement": "its model is with one site at a time, and lost with it"}


def refuse_for_peers(config: RunConfig, *, for_science: bool) -> None:
    for refuse in (*_ALWAYS, *(() if for_science else _UNLESS_FOR_SCIENCE)):
        refuse(config)


def records_belong_to_sites(config: RunConfig) -> None:
    data = config.data
    if not isinstance(data, OwnFile):
        raise UserError(
            f"data.kind = {data.kind!r} does not go with peers, who bring a file each; use csv, parquet or npz with "
            'data.path = "records-{node}.csv".'
        )
    if data.one_lot:
        raise UserError(
            f"data.path = {data.path!r} is one file for all, and peers bring one each; put {{node}} into its name, or "
            "name data.owner, the column that says whose a record is."
        )


def labels_are_declared(config: RunConfig) -> None:
    data = config.data
    declared = data.task == "regression" or data.multi_label if isinstance(data, OwnFile) else True
    if isinstance(data, OwnFile) and data.classes is None and not declared:
        raise UserError(
            "data.classes is not set: which labels occur at the other sites nobody sees; set their number or list "
            'them, for example data.classes = 2 (or data.task = "regression").'
        )


def no_rows_are_drawn_from_all(config: RunConfig) -> None:
    for key in ("train_rows", "held_out"):
        if (value := getattr(config.data, key)) is not None:
            raise UserError(
                f"data.{key} = {value} draws among the records of all sites, which nobody has; leave it out."
            )
    if config.data.pca is not None and config.data.pca_from in ("train", "private"):
        raise UserError(
            f"data.pca_from = {config.data.pca_from!r} fits components on the records of all sites, which nobody has; "
            "name a public set."
        )
    if asked := config.data.private_steps:
        raise UserError(
            f"{' and '.join(asked)}: this takes the sum of all sites' releases before the first round, and peers have "
            "no such moment; declare data.ranges, or public weights."
        )


def no_private_figures(config: RunConfig) -> None:
    """A site that skipped rounds, or left, would be judged at another moment than the others."""
    if config.evaluation.private is not None:
        raise UserError(
            f"evaluation.private = {config.evaluation.private:g} releases figures when all nodes have done the last "
            "round, and peers have no such moment; leave it out, or name a public data.test."
        )


def a_person_is_at_one_site(config: RunConfig) -> None:
    if config.privacy.max_sites > 1:
        raise UserError(
            f"privacy.unit.max_sites = {config.privacy.max_sites} has the same person at several sites, whose releases "
            "are priced together, and no site has the others' ledgers; use max_sites = 1, with each person at one site."
        )


def no_baseline(config: RunConfig) -> None:
    if config.baseline != "none":
        raise UserError(
            f"baseline = {config.baseline!r} is for comparisons in one process; leave it out for peers."
        )


def no_code(config: RunConfig) -> None:
    if isinstance(config.model, Own | Withheld):
        raise UserError(
            "model.kind = 'own' is code, and a study carries none; use one of the models that every site has."
        )


def method_survives(config: RunConfig) -> None:
    kind, rule = config.algorithm.kind, config.algorithm.rule
    if rule not in SURVIVES:
        why = _WHY_NOT.get(rule, "nobody has shown that it survives messages that are lost")
        raise UserError(
            f"algorithm.kind = {kind!r} cannot run among peers: {why}; use a push-sum method such as dyn-d2p "
            "or full-lot."
        )


def means_are_by_push_sum(config: RunConfig) -> None:
    asked, centre = config.algorithm, config.privacy.centre
    if asked.mixes == "exact":
        raise UserError(
            "algorithm.mixes = 'exact' needs every site in every exchange, and peers may be away; use a number."
        )
    if asked.rule != PUSH_SUM and (asked.final_gossip or centre is not None):
        key = (
            f"privacy.centre = {centre:g}"
            if centre is not None
            else f"algorithm.final_gossip = {asked.final_gossip}"
        )
        raise UserError(
            f"{key} agrees by push-sum, and algorithm.kind = {asked.kind!r} does not; leave it out, or use a push-sum "
            "method such as full-lot."
        )


def noise_is_each_sites_own(config: RunConfig) -> None:
    noise = config.privacy.noise
    if noise.kind.cancels:
        raise UserError(
            f"privacy.noise.family.kind = {noise.family.kind!r} cancels only if every message arrives, and peers may "
            "be away; use 'gaussian'."
        )

    if noise.on == "iterate":
        raise UserError(
            "privacy.noise.on = 'iterate' puts noise on messages, and peers put what was released on disk before it "
            "leaves; use 'gradient'."
        )


def a_crash_loses_nothing(config: RunConfig) -> None:
    if not method_of(config).resumable:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} cannot go on after a crash of one site: its "
            "pass over the records would begin anew; use 'poisson' or 'full'."
        )


def nothing_unprivate_is_shown(config: RunConfig) -> None:
    if config.evaluation.diagnostics:
        raise UserError(
            "evaluation.diagnostics = true is not private and must not leave a site; leave it out."
        )


def noise_protects(config: RunConfig) -> None:
    noise = config.privacy.noise
    if noise.source == "seeded":
        raise UserError(
            "privacy.noise.source = 'seeded' is noise that everyone can draw, and no privacy; use 'system', or "
            "--for-science on records that need none."
        )
    if not noise.kind.adds:
        raise UserError(
            "privacy.noise.schedule.kind = 'none' protects nobody; ask for privacy.epsilon, or use --for-science on "
            "records that need no privacy."
        )


def epsilon_is_proven(config: RunConfig) -> None:
    if config.mode != "sound":
        raise UserError(
            f'mode = {config.mode!r} claims an ε that nobody has proven; use "sound", or --for-science on records that '
            "need no privacy."
        )


_ALWAYS: tuple[Callable[[RunConfig], None], ...] = (
    records_belong_to_sites,
    labels_are_declared,
    no_rows_are_drawn_from_all,
    no_private_figures,
    a_person_is_at_one_site,
    no_baseline,
    no_code,
    method_survives,
    means_are_by_push_sum,
    noise_is_each_sites_own,
    a_crash_loses_nothing,
    nothing_unprivate_is_shown,
)
_UNLESS_FOR_SCIENCE: tuple[Callable[[RunConfig], None], ...] = (noise_protects, epsilon_is_proven)
