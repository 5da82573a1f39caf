"""What DP-dKM's noise and operators cannot be combined with."""

from __future__ import annotations

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError


def check(config: RunConfig) -> None:
    for refuse in (
        messages_pay_for_one_exchange,
        messages_have_the_same_noise_each,
        node_resolvents_bound_no_record,
        iterates_have_no_proof,
    ):
        refuse(config)


def messages_pay_for_one_exchange(config: RunConfig) -> None:
    asked = config.algorithm
    if config.privacy.noise.on == "iterate" and (
        asked.mixes != 1 or asked.final_gossip or config.privacy.centre
    ):
        raise UserError(
            "privacy.noise.on = 'iterate' pays for one message a round; leave out algorithm.mixes, "
            "algorithm.final_gossip and privacy.centre."
        )


def messages_have_the_same_noise_each(config: RunConfig) -> None:
    noise = config.privacy.noise
    if noise.on == "iterate" and noise.schedule.kind not in ("constant", "none"):
        raise UserError(
            f"privacy.noise.schedule.kind = {noise.schedule.kind!r} does not go with privacy.noise.on = 'iterate', "
            "where every message has the same noise; use 'constant'."
        )


def node_resolvents_bound_no_record(config: RunConfig) -> None:
    noise = config.privacy.noise
    if config.algorithm.resolvent == "node" and noise.on == "gradient" and noise.kind.adds:
        raise UserError(
            "algorithm.resolvent = 'node' mixes all records of a node into one vector, so clipping it bounds no "
            "record's influence; use 'record'."
        )


def iterates_have_no_proof(config: RunConfig) -> None:
    if config.mode == "sound" and config.privacy.noise.kind.adds and config.privacy.noise.on == "iterate":
        raise UserError(
            "privacy.noise.on = 'iterate' has no proof (the operator is evaluated at iterates that were never released "
            "and the last one is given out without noise); use 'gradient', or mode = \"paper\" to study it."
        )
