"""A site's part in a study: its node and configuration, its links, its roster, and the checks before it begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

import gossamer
from gossamer.config.schema import RunConfig
from gossamer.consortium.authority import days_left
from gossamer.consortium.exchange import Epoch
from gossamer.consortium.files import now
from gossamer.consortium.frames import largest_frame
from gossamer.consortium.links import Links
from gossamer.consortium.roster import Roster, Span
from gossamer.consortium.site import KEY, ROSTER, Site
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.training.assemble import assemble
from gossamer.training.budget import prospects
from gossamer.training.plan import Plan


@dataclass(frozen=True)
class Participation:
    """A site that can take part in a study; `open` makes all checks that need no connection."""

    site: Site
    study: Study
    roster: Roster  # the newest that the operator accepted
    config: RunConfig  # the recipe with this site's file and cap
    first: Span  # the epoch in which it begins
    sites: tuple[str, ...]  # in the order of their nodes
    warnings: tuple[str, ...]

    @classmethod
    def open(cls, study_file: Path, site_file: Path, folder: Path, at: datetime | None = None) -> Self:
        """`folder`: where this site keeps what belongs to the study; a link to its records is put there."""
        site = Site.read(site_file)
        warnings = site.check(at or now())
        roster = site.roster()
        study = Study.read(study_file, site.authority)
        study.check_accepted(roster)
        first = study.first_epoch(roster, site.name)
        if first is None:
            raise UserError(f"{site.name} is not in the study {study.name} of {', '.join(study.sites)}.")
        if study.gossamer != gossamer.__version__:
            versions = f"{study.gossamer!r}, and this site runs {gossamer.__version__}"
            warnings.append(f"{study.where} was packed by gossamer {versions}: run the same at all sites.")
        sites = study.nodes_for(site.name)
        config = study.config_at(site, folder, roster.site(site.name).records)
        return cls(site, study, roster, config, first, sites, tuple(warnings))

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def revoked(self) -> bool:
        return self.roster.site(self.name).revoked

    @property
    def node(self) -> int:
        return self.sites.index(self.name)

    @property
    def nodes(self) -> range:
        """Hosted here."""
        return range(self.node, self.node + 1)

    def plan(self) -> Plan:
        """Plan the run; refuse where this machine would begin with another model than the others."""
        plan = Plan.of(self.config, nodes=self.nodes)
        self.study.check_first_model(plan)
        return plan

    def open_links(self) -> Links:
        """Open links to all sites of the roster over mutual TLS."""
        try:
            from gossamer.consortium.grpc_links import GrpcLinks, Identity
        except ModuleNotFoundError as error:
            raise UserError(f'{error.name} is not installed; pip install "gossamer[peers]".') from None
        site, roster = self.site, self.roster
        certificate = roster.site(site.name).certificate.encode()
        identity = Identity(site.name, roster.authority.encode(), certificate, site.file(KEY).read_bytes())
        members = self.study.members(roster).values()
        largest = largest_frame(self.study.model.parameters)
        return GrpcLinks(identity, members, site.listener, largest, version=gossamer.__version__)

    def check(self) -> list[str]:
        """Check all that needs no connection, and describe it; draws nothing and spends nothing."""
        study, site, roster = self.study, self.site, self.roster
        if self.revoked:
            raise UserError(f"{site.name} was revoked; `gossamer peer leave` certifies what it has spent.")
        plan = self.plan()
        privacy = plan.privacy
        parts = assemble(plan, nodes=self.nodes)
        later = study.epochs(roster)[1:]
        for number, sites in later:
            if site.name in sites and len(sites) > 1:
                epoch_with_graph(plan, number, sites)
        days = days_left(roster.site(site.name).parsed, now())
        lines = [
            f"study {study.name}, version {study.version}: signed by the authority that {site.name} knows",
            f"roster {roster.version}: {site.name} is node {self.node} of {', '.join(self.sites)}",
            *(f"from round {number} on: {', '.join(sites)}" for number, sites in later),
            f"certificate: good for {days} more days",
            f"records: {site.data_file()} can be read and fits; {privacy.nodes[self.node].records:,} are declared",
            f"first model: {study.model.digest[:16]}, as packed",
        ]
        if len(parts.test[0]):
            lines.append(f"test rows: {len(parts.test[0]):,}, as packed")
        for one in prospects([(plan, 1)], None, self.nodes, self.site.file(".")):
            one.refuse_above_cap()
            named = f" {one.name!r}" if one.name else ""
            cap = "no cap: these records are public" if one.cap is None else f"cap {one.cap:g}"
            lines.append(
                f"account{named}: proven ε {one.before.epsilon:.3g} spent, "
                f"{one.together.epsilon:.3g} with this study, {cap} (δ = {one.together.delta:g}, "
                f"{one.together.adjacency}, unit: {one.together.unit}; observer: {one.together.observer})"
            )
            lines += [f"account{named}: {one.note}"] if one.note else []
        return lines

    def try_links(self, seconds: float, open_links: Callable[[], Links] | None = None) -> dict[str, str]:
        """Return each other site's link state once all are up or the time is over, and its version if another."""
        links = (open_links or self.open_links)()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and any(state != "up" for state in links.states().values()):
                time.sleep(0.05)
            here, versions = gossamer.__version__, links.versions()
            others = {name: f", gossamer {v} (here {here})" for name, v in versions.items() if v != here}
            return {name: state + others.get(name, "") for name, state in links.states().items()}
        finally:
            links.close()


def epoch_with_graph(plan: Plan, number: int, sites: tuple[str, ...]) -> Epoch:
    """Build the recipe's graph for the sites of an epoch."""
    config = plan.config
    try:
        graph = config.topology.build(nodes=len(sites), weights=plan.algorithm.weights, seed=config.seed)
    except UserError as error:
        what = f"from round {number} on the recipe has no graph for the sites {', '.join(sites)}"
        remedy = "let others join or leave, or pack the study again"
        raise UserError(f"{what}: {str(error).rstrip('.')}; {remedy}.") from None
    return Epoch(number, sites, graph)


class RosterFollower:
    """The roster that the operator accepted last, followed while the site takes part.

    A revoked site must lose its link within seconds, however long a round takes: call `update` in a thread of its own.
    """

    def __init__(self, participation: Participation, links: Links, say: Callable[[str], None]):
        self._site, self._study, self._roster = participation.site, participation.study, participation.roster
        self._links, self._say = links, say
        self._seen: tuple[int, int] | None = None
        self._failed: UserError | None = None
        self._lock = threading.Lock()

    def newest(self) -> Roster:
        """Return the newest roster, or raise what is wrong with it."""
        self.update()
        if self._failed is not None:
            raise self._failed
        return self._roster

    def update(self) -> None:
        """Look at the file, and change the links if there is a newer roster."""
        with self._lock:
            if self._failed is not None:
                return
            try:
                self._read()
            except UserError as error:
                self._failed = error
                self._links.close()  # a site that lost its right to a link has none, also after an error

    def _read(self) -> None:
        try:
            status = self._site.file(ROSTER).stat()
            mark = status.st_mtime_ns, status.st_ino
        except OSError:
            mark = None
        if mark is not None and mark == self._seen:
            return
        self._seen, roster = mark, self._site.roster()
        if roster.version <= self._roster.version:
            return
        if roster.site(self._site.name).revoked:
            self._links.close()
        else:
            self._links.update(self._study.members(roster).values())
        self._roster = roster
        self._say(f"roster {roster.version} is accepted and in force")


@contextmanager
def repeated(work: Callable[[], None], every: float = 1.0) -> Iterator[None]:
    """Call `work` every so many seconds in a thread of its own, and once at the end."""
    ended = threading.Event()

    def call() -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(every)
            work()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
