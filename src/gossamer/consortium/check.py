"""`gossamer peer check`: what can go wrong, found before a record is read for training or a draw is paid for."""

from __future__ import annotations

import time
from collections.abc import Callable

import gossamer
from gossamer.accounting.budget import refuse_above
from gossamer.consortium.authority import days_left
from gossamer.consortium.epochs import built, epochs_of
from gossamer.consortium.links import Links
from gossamer.consortium.names import now
from gossamer.consortium.peer import open_links
from gossamer.consortium.ready import Ready
from gossamer.errors import UserError
from gossamer.training.assemble import assemble
from gossamer.training.budget import prospects
from gossamer.training.plan import Plan


def without_links(found: Ready) -> list[str]:
    """Sentences about what was checked; one that something is wrong is raised."""
    study, site, roster = found.study, found.site, found.roster
    if found.revoked:
        raise UserError(
            f"{site.name} was revoked in roster {roster.version}: it has no links any more; `gossamer peer leave` "
            "certifies what it has spent."
        )
    o = found.plan()
    parts = assemble(o, nodes=found.nodes)
    left = days_left(roster.site(site.name).parsed, now())
    said = [
        f"study {study.name}, version {study.version}: signed by the authority that {site.name} knows",
        f"roster {roster.version}: {site.name} is node {found.node} of {', '.join(found.sites)}",
        *_changes(found, o),
        f"certificate: good for {left} more days",
        f"records: {site.data} can be read and fits; {o.privacy.nodes[found.node].records:,} are declared",
        f"first model: {study.body.model.digest[:16]}, as packed",
    ]
    if len(parts.test[0]):
        said.append(f"test rows: {len(parts.test[0]):,}, as packed")
    for one in prospects([(o, 1)], None, found.nodes):
        refuse_above(one.account, one.together, one.before, one.cap, one.owners)
        cap = "no cap: these records are public" if one.cap is None else f"cap {one.cap:g}"
        said.append(
            f"budget: proven ε {one.before.epsilon:.3g} spent, {one.together.epsilon:.3g} with this study, "
            f"{cap} (δ = {o.privacy.figures()['delta']:g}, {o.privacy.adjacency}, unit: {o.privacy.unit}; observer: "
            f"{o.privacy.observer.describe()})"
        )
    return said


def _changes(found: Ready, o: Plan) -> list[str]:
    """Who takes part from which round on, where that changes; a graph that cannot be is raised."""
    later = epochs_of(found.study, found.roster)[1:]
    for number, sites in later:
        if found.site.name in sites and len(sites) > 1:
            built(o, number, sites)
    return [f"from round {number} on: {', '.join(sites)}" for number, sites in later]


def links_up(found: Ready, seconds: float, links: Callable[[Ready], Links] = open_links) -> dict[str, str]:
    """Every other site and how its link is, once all are up or the time is over; which gossamer it runs, if another."""
    carrier = links(found)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(state != "up" for state in carrier.states().values()):
            time.sleep(0.05)
        other = {name: v for name, v in carrier.versions().items() if v != gossamer.__version__}
        return {
            name: state + (f", gossamer {other[name]} (here {gossamer.__version__})" if name in other else "")
            for name, state in carrier.states().items()
        }
    finally:
        carrier.close()
