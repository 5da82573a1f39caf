"""What cannot be combined with a unit other than a record: each in one sentence."""

from __future__ import annotations

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError


def a_unit_has_a_price(config: RunConfig) -> None:
    """What moves by one record's bound, and no more, where a person or a node is protected: else it is refused."""
    privacy, data, unit = config.privacy, config.data, config.privacy.unit
    if unit == "record":
        return
    said = "privacy.unit = 'node'" if unit == "node" else f"privacy.unit.column = {privacy.protects.column!r}"
    sites = f"privacy.unit.max_sites = {privacy.max_sites} has a person at several nodes, and"
    refused: tuple[tuple[bool, str], ...] = (
        (
            privacy.noise.on == "iterate",
            f"{said} does not go with privacy.noise.on = 'iterate', which has no bound on it; use 'gradient'.",
        ),
        (
            privacy.centre is not None,
            f"{said} does not go with privacy.centre, a mean that is priced for records; leave it out.",
        ),
        (
            unit == "node" and config.evaluation.private is not None,
            f"{said} does not go with evaluation.private: one node's records are one unit, of which noise leaves "
            "nothing; use a public hold-out.",
        ),
        (
            data.own and (data.train_rows is not None or data.held_out is not None),
            f"{said} does not go with data.train_rows or data.held_out on records of your own: which rows they take "
            "follows the number of all; leave them out.",
        ),
        (
            data.partition.most_copies(2) > 1,
            f"{said} does not go with data.partition.kind = {data.partition.kind!r}, which puts copies of records on "
            "several nodes; use 'even' or 'owner'.",
        ),
        (
            privacy.max_sites > 1 and config.baseline == "central",
            f"{sites} baseline = 'central' would count the parts as several persons; use max_sites = 1.",
        ),
        (
            privacy.max_sites > 1 and privacy.noise.kind.cancels,
            f"{sites} with privacy.noise.family.kind = {privacy.noise.family.kind!r} they add up in the sum of all "
            "nodes while the noise does not, which is not priced; use 'gaussian'.",
        ),
        (
            unit == "node" and privacy.sampling.kind != "full",
            f"{said} has one unit at a node, which is in every draw; use privacy.sampling.kind = 'full', not "
            f"{privacy.sampling.kind!r}.",
        ),
        (
            unit == "node" and privacy.clip.follows_records,
            f"{said} has no quantile to follow; use privacy.clip.kind = 'constant', not {privacy.clip.kind!r}.",
        ),
        (
            unit == "node" and config.weighting == "size",
            f"{said} hides how many records a node has; use weighting = 'uniform'.",
        ),
    )
    if privacy.centre is None and not privacy.noise.kind.adds:  # without noise nothing is promised
        return
    for wrong, sentence in refused:
        if wrong:
            raise UserError(sentence)
