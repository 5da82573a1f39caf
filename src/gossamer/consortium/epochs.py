"""Which sites take part from which round on: what a study and a later roster say together.

The first epoch has the sites that the study was packed for. A later one is called by its first round, so that sites
with different rosters mean the same by it. A change at a round that has passed for a site changes its graph no more: a
revoked site is then one that is away for good, until the next epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.consortium.exchange import Epoch
from gossamer.consortium.links import Member
from gossamer.consortium.roster import Roster
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.training.plan import Plan

Span = tuple[int, tuple[str, ...]]  # (first round, sites by name)


def epochs_of(study: Study, roster: Roster) -> list[Span]:
    """All that the roster knows of, the study's own first."""
    listed = roster.epochs(study.roster.version, study.config.rounds)
    return [(0, study.sites), *(span for span in listed if span[0] > 0)]


def first_with(study: Study, roster: Roster, site: str) -> Span | None:
    """The epoch with which it begins; None if it has no part in the study."""
    return next((span for span in epochs_of(study, roster) if site in span[1]), None)


def due(study: Study, roster: Roster, present: int, reached: int) -> Span | None:
    """The epoch of round `reached`, if it is a later one than `present`."""
    later = [span for span in epochs_of(study, roster) if present < span[0] <= reached]
    return later[-1] if later else None


def nodes_of(study: Study, site: str) -> tuple[str, ...]:
    """Among whom the site is counted in its plan, ledger and certificate; its place there is its node.

    One that joins is one more than the study has, whoever else joins: rosters that come later change nothing in that.
    """
    return study.sites if site in study.sites else (*study.sites, site)


def members_of(study: Study, roster: Roster) -> dict[str, Member]:
    """All to whom there may be a link: also who leaves or joins at a round, but nobody who was revoked."""
    return roster.members(since=study.roster.version)


def built(o: Plan, number: int, sites: tuple[str, ...]) -> Epoch:
    """With the graph of the recipe for so many sites."""
    config = o.config
    try:
        graph = config.topology.build(nodes=len(sites), weights=o.algorithm.weights, seed=config.seed)
    except UserError as error:
        raise UserError(
            f"from round {number} on the study has {len(sites)} sites ({', '.join(sites)}), and its recipe has no "
            f"graph for them: {str(error).rstrip('.')}; let others join or leave, or pack it anew."
        ) from None
    return Epoch(number, sites, graph)


def rescaled(o: Plan, node: int, records: Sequence[int]) -> float:
    """By what a gradient counts more or less than planned, now that the sites have so many records.

    With weighting = "size" a site counts by its share of all records, which changes with the sites.
    """
    plan = o.privacy.nodes[node]
    if o.config.weighting != "size":
        return 1.0
    return plan.records * len(records) / sum(records) / plan.weight
