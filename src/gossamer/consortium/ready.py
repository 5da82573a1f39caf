"""Everything that `gossamer peer` needs before it opens a connection, checked: one call, or one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import gossamer
from gossamer.config.schema import RunConfig
from gossamer.consortium.epochs import Span, first_with, nodes_of
from gossamer.consortium.roster import Roster
from gossamer.consortium.site import Site
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.training.plan import Plan


@dataclass(frozen=True)
class Ready:
    """A site that can take part in a study."""

    site: Site
    study: Study
    roster: Roster  # the newest that the operator accepted
    config: RunConfig  # the recipe with this site's file and cap
    first: Span  # the epoch with which it begins: (first round, its sites)
    sites: tuple[str, ...]  # among whom it is counted: node 0 is the first
    warnings: tuple[str, ...]

    @property
    def revoked(self) -> bool:
        return self.roster.site(self.site.name).revoked

    @property
    def node(self) -> int:
        return self.sites.index(self.site.name)

    @property
    def nodes(self) -> range:
        """Hosted here."""
        return range(self.node, self.node + 1)

    def plan(self) -> Plan:
        """Through the one door; refuses where this machine would begin with another model than the others."""
        made = Plan.of(self.config, nodes=self.nodes)
        self.study.check_plan(made)
        return made


def ready(study_file: Path, site_file: Path, folder: Path, now: datetime) -> Ready:
    """`folder`: where this site keeps what belongs to the study; a link to its records is put there."""
    site = Site.read(site_file)
    warnings = site.check(now)
    roster = site.roster()
    study = Study.read(study_file, site.asked.authority)
    study.check_held(roster)
    first = first_with(study, roster, site.name)
    if first is None:
        raise UserError(
            f"{site.name} is not in the study {study.name}, which was packed with roster {study.roster.version}: "
            f"its sites are {', '.join(study.sites)}."
        )
    if study.body.gossamer != gossamer.__version__:
        warnings.append(
            f"{study.where} was packed by gossamer {study.body.gossamer!r}, and this site runs {gossamer.__version__}: "
            "let all sites run the same."
        )
    names = nodes_of(study, site.name)
    config = study.config if names == study.sites else study.with_joiner(roster.site(site.name).records)
    config = study.at(site, folder, config, names.index(site.name))
    return Ready(site, study, roster, config, first, names, tuple(warnings))
