"""A study: all that the sites of a consortium must agree upon before they train together, in one signed file.

The recipe with every value in it, the roster, digests of the model that all begin with and of the public test rows,
and what a round may take. No record, no path of anybody's machine, no code.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from gossamer.config.layers import whole
from gossamer.config.schema import RunConfig
from gossamer.consortium import files
from gossamer.consortium.formats import Digest, Stamp, Strict, parse, read_signed
from gossamer.consortium.roster import Member, Roster
from gossamer.consortium.site import Site
from gossamer.data.dataset import digest
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.tables import Records
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_values
from gossamer.methods import method_of
from gossamer.models.networks import Own, Withheld
from gossamer.results.trained.weights import model_digests
from gossamer.training.plan import Plan

KIND, ENDING = "study", ".study"
Span = tuple[int, tuple[str, ...]]  # an epoch: (first round, sites by name)
PUSH_SUM = "push-sum"
# Update rules whose sums survive messages that are lost, late or repeated, and sites that are away; see rules.py.
SURVIVES = (PUSH_SUM, "dsgd", "dsgt", "dinno", "km")


class Model(Strict):
    """The model that every site begins with."""

    digest: Digest
    parameters: Annotated[int, Field(ge=1)]


class TestRows(Strict):
    """The public rows on which models are evaluated. They are sent separately, and recognised by the digest."""

    __test__ = False  # for pytest

    digest: Digest
    rows: Annotated[int, Field(ge=1)]
    file: str


class Terms(Strict):
    """What sites agree upon besides the recipe."""

    deadline: Annotated[float, Field(gt=0, le=86400)]  # seconds that a round waits for a neighbour
    late: Annotated[int, Field(ge=0, le=10_000)]  # rounds after which a parcel counts no longer
    tick: Annotated[float, Field(ge=0, le=3600)]  # messages leave at multiples of so many seconds
    for_science: bool = False  # may the noise protect nobody?


class Body(Strict):
    name: str
    version: Annotated[int, Field(ge=1, le=10**6)]
    issued: Stamp
    gossamer: str  # the version that packed it
    recipe: str  # TOML
    roster: str
    model: Model
    test: TestRows | None
    terms: Terms


@dataclass(frozen=True)
class Study:
    """A study that was read and verified."""

    content: bytes
    where: str
    body: Body
    roster: Roster  # as it was packed; a newer one may be in force by now

    @classmethod
    def read(cls, path: Path, authority: str | None = None) -> Study:
        """`authority`: the fingerprint whose signature counts; any, if None."""
        return cls.of(files.read(path), str(path), authority)

    @classmethod
    def of(cls, content: bytes, where: str, authority: str | None = None) -> Study:
        file = read_signed(KIND, content, where)
        body = parse(Body, file.body, f"{where} is damaged")
        roster = Roster.read(body.roster.encode(), f"the roster in {where}", authority)
        file.check(roster.public_key)
        return cls(content, where, body, roster)

    @property
    def identity(self) -> str:
        """The digest of the file, which frames and certificates name."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def version(self) -> int:
        return self.body.version

    @property
    def terms(self) -> Terms:
        return self.body.terms

    @cached_property
    def config(self) -> RunConfig:
        """The recipe. Its paths are placeholders: see `config_at`."""
        try:
            tables = tomllib.loads(self.body.recipe)
        except (tomllib.TOMLDecodeError, RecursionError):
            raise UserError(f"{self.where} is damaged: its recipe is not TOML.") from None
        config = whole(tables, f"the recipe in {self.where}")
        refuse_for_peers(config, for_science=self.terms.for_science)
        if config.nodes != len(self.sites):
            raise UserError(
                f"{self.where} is for {config.nodes} nodes, and its roster has {len(self.sites)} sites."
            )
        return config

    # Sites and epochs. The first epoch has the sites that the study was packed for. A later one is named by its first
    # round, so that sites with different rosters mean the same by it. A change at a round that has passed for a site
    # does not change its graph: a revoked site is then away for good, until the next epoch.

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """By name: the first is node 0."""
        return tuple(self.roster.members(0))

    def nodes_for(self, site: str) -> tuple[str, ...]:
        """Return the sites in the order of their nodes in one site's plan, ledger and certificate.

        A site that joins is one more than the study has, whoever else joins, so later rosters change nothing in that.
        """
        return self.sites if site in self.sites else (*self.sites, site)

    def members(self, roster: Roster) -> dict[str, Member]:
        """Return all to whom there may be a link: also those who leave or join later, but nobody who was revoked."""
        return roster.members(since=self.roster.version)

    def epochs(self, roster: Roster) -> list[Span]:
        """Return all epochs that the roster knows of, the study's own first."""
        listed = roster.epochs(self.roster.version, self.config.rounds)
        return [(0, self.sites), *(span for span in listed if span[0] > 0)]

    def first_epoch(self, roster: Roster, site: str) -> Span | None:
        """Return the epoch in which the site begins; None if it has no part in the study."""
        return next((span for span in self.epochs(roster) if site in span[1]), None)

    def later_epoch(self, roster: Roster, present: int, reached: int) -> Span | None:
        """Return the epoch of round `reached`, if it is later than the epoch `present`."""
        later = [span for span in self.epochs(roster) if present < span[0] <= reached]
        return later[-1] if later else None

    def check_accepted(self, accepted: Roster) -> None:
        """Refuse unless the study's roster is the one that the site accepted, or an earlier version of it."""
        if self.roster.version > accepted.version:
            raise UserError(
                f"{self.where} is for roster {self.roster.version}, and roster {accepted.version} is accepted here; "
                "`gossamer pki accept` the newest first."
            )
        if [*accepted.body.history, accepted.digest][self.roster.version - 1] != self.roster.digest:
            raise UserError(
                f"{self.where} has another roster {self.roster.version} than the one that was accepted here: there are "
                "two of one version; ask the consortium's operator by telephone."
            )

    # At a site

    def config_at(self, site: Site, folder: Path, records: int) -> RunConfig:
        """Return the recipe as a site runs it: with its own file, test rows and cap.

        `records`: declared by the site, for one that joins later. `folder` gets a link to the file, named by the
        node as the files of several nodes are; what is spent is recorded next to the file itself.
        """
        sites = self.nodes_for(site.name)
        config = self.config if sites == self.sites else self._config_with_joiner(records)
        data, link = config.data, folder / f"records-{PLACE}"
        assert isinstance(data, OwnFile)
        if PLACE in str(folder):
            raise UserError(
                f"{folder} has {PLACE} in its name, which stands for a node's number; name another place."
            )
        if not site.data.is_file():
            raise UserError(f"{site.path}: data = {site.settings.data!r} is not a file.")
        own_link = Path(str(link).replace(PLACE, str(sites.index(site.name))))
        if own_link.is_symlink():
            own_link.unlink()
        own_link.symlink_to(site.data.resolve())
        caps = [cap for cap in (config.privacy.cap, site.cap) if cap is not None]
        here: dict[str, Any] = {"path": str(link), "test": self._test_file(site)}
        return config.model_copy(
            update={
                "data": replace(data, **here),
                "privacy": config.privacy.model_copy(update={"cap": min(caps, default=None)}),
            }
        )

    def _config_with_joiner(self, records: int) -> RunConfig:
        config, count = self.config, len(self.sites) + 1
        for key in ("epsilon", "delta"):
            if isinstance(getattr(config.privacy, key), list):
                raise UserError(
                    f"privacy.{key} of the study {self.name} lists one value for each of its {count - 1} sites, and a "
                    "site that joins has none; pack a study with one value for all."
                )
        tables = config.model_dump(exclude_none=True)
        declared = [site.records for site in self.roster.members(0).values()]
        tables |= {"nodes": count, "data": {**tables["data"], "records": [*declared, records]}}
        return whole(tables, f"the recipe in {self.where}, for {count} sites")

    def check_first_model(self, plan: Plan) -> None:
        """Refuse if this machine does not begin with the packed model: another torch may draw another."""
        if first_model(plan) != self.body.model:
            raise UserError(
                f"the first model here is not that of {self.where}: another version of torch or gossamer draws "
                f"another; install gossamer {self.body.gossamer} and the versions of its constraints.txt."
            )

    def _test_file(self, site: Site) -> str | None:
        """Return the site's copy of the public rows, after comparing it with the digest."""
        packed = self.body.test
        if packed is None:
            return None
        path = site.test or site.path.parent / packed.file
        if not path.is_file():
            raise UserError(
                f"{site.path}: test is not set and {packed.file} is not next to it; the study's {packed.rows} public "
                "test rows are needed here."
            )
        data = self.config.data
        assert isinstance(data, OwnFile)
        rows = replace(data, test=str(path)).public_rows(None)
        if rows is None or rows_digest(rows) != packed.digest:
            raise UserError(
                f"{path} holds other test rows than the study {self.name} was packed with; get them again."
            )
        return str(path)


def rows_digest(rows: Records) -> str:
    """Return the digest of rows as they were read, before any arithmetic: the same on every machine."""
    return digest({"x": rows.x, "y": rows.y.astype(str)})


def first_model(plan: Plan) -> Model:
    import torch

    frozen = [value.flatten().float() for value in fixed_values(plan.module).values()]
    every = torch.cat([plan.stack.flatten(plan.module), *frozen]).reshape(1, -1)
    return Model(digest=model_digests(every)[0], parameters=plan.stack.dim)


def refuse_for_peers(config: RunConfig, *, for_science: bool) -> None:
    """Refuse what separate sites cannot run: what needs everyone at once, one machine's files, or foreign code.

    What no run can be is refused by `training/plan.py`.
    """
    for problem in _data_problems(config):
        raise UserError(problem)
    for problem in _method_problems(config):
        raise UserError(problem)
    for problem in () if for_science else _protection_problems(config):
        raise UserError(problem)


def _data_problems(config: RunConfig) -> Iterator[str]:
    data = config.data
    if not isinstance(data, OwnFile):
        yield (
            f"data.kind = {data.kind!r} does not go with peers, who bring a file each; use csv, parquet or npz with "
            'data.path = "records-{node}.csv".'
        )
        return
    if data.one_lot:
        yield (
            f"data.path = {data.path!r} is one file for all, and peers bring one each; put {{node}} into its name, or "
            "name data.owner, the column that says whose a record is."
        )
    if data.classes is None and data.task != "regression" and not data.multi_label:
        yield (
            "data.classes is not set, and no site sees the labels of the others; set their number or list them, for "
            'example data.classes = 2 (or data.task = "regression").'
        )
    for key in ("train_rows", "held_out"):
        if (value := getattr(data, key)) is not None:
            yield f"data.{key} = {value} draws among the records of all sites, which nobody has; leave it out."
    if data.pca is not None and data.pca_from in ("train", "private"):
        yield (
            f"data.pca_from = {data.pca_from!r} fits components on the records of all sites, which nobody has; name a "
            "public set."
        )
    if data.private_steps:
        yield (
            f"{' and '.join(data.private_steps)}: this takes the sum of all sites' releases before the first round, "
            "and peers have no such moment; declare data.ranges, or public weights."
        )
    if (
        config.evaluation.private is not None
    ):  # a site that skipped rounds or left would be judged at another moment
        yield (
            f"evaluation.private = {config.evaluation.private:g} releases figures when all nodes have done the last "
            "round, and peers have no such moment; leave it out, or name a public data.test."
        )
    if config.evaluation.diagnostics:
        yield "evaluation.diagnostics = true is not private and must not leave a site; leave it out."
    if config.privacy.max_sites > 1:
        yield (
            f"privacy.unit.max_sites = {config.privacy.max_sites} has the same person at several sites, whose releases "
            "are priced together, and no site has the others' ledgers; use max_sites = 1, with each person at one site."
        )


def _method_problems(config: RunConfig) -> Iterator[str]:
    algorithm, noise, centre = config.algorithm, config.privacy.noise, config.privacy.centre
    if config.baseline != "none":
        yield f"baseline = {config.baseline!r} is for comparisons in one process; leave it out for peers."
    if isinstance(config.model, Own | Withheld):
        yield "model.kind = 'own' is code, and a study carries none; use one of the models that every site has."
    if algorithm.rule not in SURVIVES:
        yield (
            f"algorithm.kind = {algorithm.kind!r} cannot run among peers: it is not known to survive lost messages; "
            "use a push-sum method such as dyn-d2p or full-lot."
        )
    if algorithm.mixes == "exact":
        yield "algorithm.mixes = 'exact' needs every site in every exchange, and peers may be away; use a number."
    if algorithm.rule != PUSH_SUM and (algorithm.final_gossip or centre is not None):
        key = f"algorithm.final_gossip = {algorithm.final_gossip}"
        key = f"privacy.centre = {centre:g}" if centre is not None else key
        yield (
            f"{key} agrees by push-sum, and algorithm.kind = {algorithm.kind!r} does not; leave it out, or use a "
            "push-sum method such as full-lot."
        )
    if noise.kind.cancels:
        yield (
            f"privacy.noise.family.kind = {noise.family.kind!r} cancels only if every message arrives, and peers may "
            "be away; use 'gaussian'."
        )
    if noise.on == "iterate":
        yield (
            "privacy.noise.on = 'iterate' puts noise on messages, and peers write what was released to disk before it "
            "leaves; use 'gradient'."
        )
    if not method_of(config).resumable:
        yield (
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} cannot resume after a crash of one site: its "
            "pass over the records would begin again; use 'poisson' or 'full'."
        )


def _protection_problems(config: RunConfig) -> Iterator[str]:
    noise = config.privacy.noise
    if noise.source == "seeded":
        yield (
            "privacy.noise.source = 'seeded' is noise that everyone can draw, and no privacy; use 'system', or "
            "--for-science on records that need none."
        )
    if not noise.kind.adds:
        yield (
            "privacy.noise.schedule.kind = 'none' protects nobody; set privacy.epsilon, or use --for-science on "
            "records that need no privacy."
        )
    if config.mode != "sound":
        yield (
            f'mode = {config.mode!r} claims an ε that is not proven; use "sound", or --for-science on records that '
            "need no privacy."
        )
