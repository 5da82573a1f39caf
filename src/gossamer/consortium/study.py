"""A study: all that the sites of a consortium must agree upon before they train together, in one signed file.

The recipe with every value in it, the roster, digests of the model that all begin with and of the public test rows,
and what a round may take. No record, no path of anybody's machine, no code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from gossamer.config.layers import named, resolve, whole
from gossamer.config.schema import RunConfig, Runtime
from gossamer.consortium import files
from gossamer.consortium.files import Digest, Stamp, Strict
from gossamer.consortium.folders import Coordinator, Site
from gossamer.consortium.roster import Member, Roster, Span, Version
from gossamer.data.dataset import Dataset, digest
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.partition import Even
from gossamer.data.tables import Records
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_values
from gossamer.methods import method_of
from gossamer.models.networks import Own, Withheld
from gossamer.results.rundir import config_text
from gossamer.results.trained import model_digests
from gossamer.topology.kinds import Matrix, read_matrix
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan

PUSH_SUM = "push-sum"
# Update rules whose sums survive messages that are lost, late or repeated, and sites that are away.
SURVIVES = (PUSH_SUM, "dsgd", "dsgt", "dinno", "km")


KIND, ENDING = "study", ".study"


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
    """The terms that sites agree upon besides the recipe."""

    deadline: Annotated[float, Field(gt=0, le=86400)] = 30.0  # seconds that a round waits for a neighbour
    late: Annotated[int, Field(ge=0, le=10_000)] = 4  # rounds after which a parcel counts no longer
    tick: Annotated[float, Field(ge=0, le=3600)] = 0.25  # messages leave at multiples of so many seconds
    for_science: bool = False  # may the noise protect nobody?


class Study(files.SignedModel):
    """A study that was read and verified."""

    name: str
    version: Version
    issued: Stamp
    gossamer: str  # the version that packed it
    recipe: str  # TOML
    signed_roster: str
    model: Model
    test: TestRows | None
    terms: Terms
    _roster: Roster = PrivateAttr()

    @classmethod
    def read(cls, path: Path, authority: str | None = None) -> Study:
        """`authority`: the fingerprint whose signature counts; any, if None."""
        return cls.of(files.read(path), str(path), authority)

    @classmethod
    def of(cls, content: bytes, where: str, authority: str | None = None) -> Study:
        study = cls.open(KIND, content, where)
        study._roster = Roster.read(study.signed_roster.encode(), f"the roster in {where}", authority)
        study._file.check(study.roster.public_key)
        return study

    @property
    def where(self) -> str:
        return self._file.where

    @property
    def roster(self) -> Roster:
        """The roster as it was packed; a newer one may be in force by now."""
        return self._roster

    @cached_property
    def config(self) -> RunConfig:
        """The recipe. Its paths are placeholders: see `config_at`."""
        try:
            tables = tomllib.loads(self.recipe)
        except (tomllib.TOMLDecodeError, RecursionError):
            raise UserError(f"{self.where} is damaged: its recipe is not TOML; get it again.") from None
        config = whole(tables, f"the recipe in {self.where}")
        refuse_for_peers(config, for_science=self.terms.for_science)
        if config.nodes != len(self.sites):
            raise UserError(f"{self.where} has {config.nodes} nodes, and its roster {len(self.sites)} sites.")
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

        A site that joins is one more than the study has, also if others join; later rosters do not change that.
        """
        return self.sites if site in self.sites else (*self.sites, site)

    def members(self, roster: Roster) -> dict[str, Member]:
        """Return all sites that may have a link: also those that leave or join later, but none that was revoked."""
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
            raise UserError(f"{self.where} is for roster {self.roster.version}; `pki accept` it first.")
        if [*accepted.history, accepted.digest][self.roster.version - 1] != self.roster.digest:
            what = f"{self.where} has another roster {self.roster.version} than was accepted here"
            raise UserError(f"{what}: there are two of one version; ask the operator by telephone.")

    # At a site

    def config_at(self, site: Site, folder: Path, records: int) -> RunConfig:
        """Return the recipe as a site runs it: with its own file, test rows, account and cap.

        `records`: declared by the site, for one that joins later. `folder` gets a link to the file, named by the
        node as the files of several nodes are.
        """
        sites = self.nodes_for(site.name)
        config = self.config if sites == self.sites else self._config_with_joiner(records)
        link = folder / f"records-{PLACE}"
        if PLACE in str(folder):
            raise UserError(f"{folder} has {PLACE} in its name; name another place.")
        own_link = folder / f"records-{sites.index(site.name)}"
        if own_link.is_symlink():
            own_link.unlink()
        own_link.symlink_to(site.data_file().resolve())
        assert isinstance(config.data, OwnFile)
        accounts = None if site.accounts is None else str(site.file(site.accounts))
        data = replace(config.data, path=str(link), test=self._test_file(site), accounts=accounts)
        caps = [cap for cap in (config.privacy.cap, None if site.public else site.cap) if cap is not None]
        privacy = config.privacy.model_copy(update={"cap": min(caps, default=None), "account": site.account})
        return config.model_copy(update={"data": data, "privacy": privacy})

    def _config_with_joiner(self, records: int) -> RunConfig:
        config, count = self.config, len(self.sites) + 1
        for key in ("epsilon", "delta"):
            if isinstance(getattr(config.privacy, key), list):
                what = f"privacy.{key} of the study {self.name} is a list, and a site that joins has no value"
                raise UserError(f"{what}; pack a study with one value for all.")
        tables = config.model_dump(exclude_none=True)
        declared = [site.records for site in self.roster.members(0).values()]
        tables |= {"nodes": count, "data": {**tables["data"], "records": [*declared, records]}}
        return whole(tables, f"the recipe in {self.where}, for {count} sites")

    def check_first_model(self, plan: Plan) -> None:
        """Refuse if this machine does not begin with the packed model: another torch may draw another."""
        if first_model(plan) != self.model:
            raise UserError(f"the first model is not that of {self.where}; install gossamer {self.gossamer}.")

    def _test_file(self, site: Site) -> str | None:
        """Return the site's copy of the public rows, after comparing it with the digest."""
        packed, data = self.test, self.config.data
        if packed is None:
            return None
        path = site.file(site.test or packed.file)
        if not path.is_file():
            raise UserError(f"{site.path}: test: the {packed.rows} public rows in {packed.file} are needed; name them.")
        assert isinstance(data, OwnFile)
        rows = replace(data, test=str(path)).public_rows(None)
        if rows is None or rows_digest(rows) != packed.digest:
            raise UserError(f"{path} holds other test rows than {self.where}; get them again.")
        return str(path)


def rows_digest(rows: Records) -> str:
    """Return the digest of rows as they were read, before any arithmetic: the same on every machine."""
    return digest({"x": rows.x, "y": rows.y.astype(str)})


def first_model(plan: Plan) -> Model:
    import torch

    frozen = [value.flatten().float() for value in fixed_values(plan.module).values()]
    every = torch.cat([plan.stack.flatten(plan.module), *frozen]).reshape(1, -1)
    return Model(digest=model_digests(every)[0], parameters=plan.stack.dim)


# What peers can run


def refuse_for_peers(config: RunConfig, *, for_science: bool) -> None:
    """Refuse what separate sites cannot run: what needs everyone at once, one machine's files, or foreign code.

    What no run can be is refused by `training/plan.py`.
    """
    for problem in chain(_data_problems(config), _method_problems(config, for_science)):
        raise UserError(problem)


def _data_problems(config: RunConfig) -> Iterator[str]:
    data, evaluation, sites = config.data, config.evaluation, config.privacy.max_sites
    if not isinstance(data, OwnFile):
        yield f"data.kind = {data.kind!r} does not go with peers; use csv, parquet or npz, a file for each site."
        return
    if data.one_lot:
        yield f"data.path = {data.path!r} is one file for all; put {{node}} into its name, or name data.owner."
    if data.classes is None and data.task != "regression" and not data.multi_label:
        yield 'data.classes is not set, and no site sees all labels; set it, or data.task = "regression".'
    for key in ("train_rows", "held_out"):
        if (value := getattr(data, key)) is not None:
            yield f"data.{key} = {value} draws among the records of all sites, which no site has; leave it out."
    if data.pca is not None and data.pca_from in ("train", "private"):
        yield f"data.pca_from = {data.pca_from!r} fits on the records of all sites; name a public set."
    if data.private_steps:
        steps = " and ".join(data.private_steps)
        yield f"{steps}: this takes sums over all sites; declare data.ranges, or public weights."
    if evaluation.private is not None:
        # A site that skipped rounds or left would be evaluated at another moment.
        yield f"evaluation.private = {evaluation.private:g} needs all sites at once; leave it out, or name data.test."
    if evaluation.diagnostics:
        yield "evaluation.diagnostics = true is not private and must not leave a site; leave it out."
    if sites > 1:
        yield f"privacy.unit.max_sites = {sites}: no site has the others' ledgers; use 1, each person at one site."


def _method_problems(config: RunConfig, for_science: bool) -> Iterator[str]:
    algorithm, noise, centre = config.algorithm, config.privacy.noise, config.privacy.centre
    sampling, schedule = config.privacy.sampling.kind, "privacy.noise.schedule.kind"
    kind, science = f"algorithm.kind = {algorithm.kind!r}", "or --for-science on records that need no privacy"
    if config.baseline != "none":
        yield f"baseline = {config.baseline!r} is for comparisons in one process; leave it out for peers."
    if isinstance(config.model, Own | Withheld):
        yield "model.kind = 'own' is code, and a study carries none; use one of the models that every site has."
    if algorithm.rule not in SURVIVES:
        yield f"{kind} cannot run among peers: it may not survive lost messages; use dyn-d2p or full-lot."
    if algorithm.mixes == "exact":
        yield "algorithm.mixes = 'exact' needs every site in every exchange, and peers may be away; use a number."
    if algorithm.rule != PUSH_SUM and (algorithm.final_gossip or centre is not None):
        gossip = f"algorithm.final_gossip = {algorithm.final_gossip}"
        key = gossip if centre is None else f"privacy.centre = {centre:g}"
        yield f"{key} agrees by push-sum, and {kind} does not; leave it out, or use full-lot."
    if noise.kind.cancels:
        family = f"privacy.noise.family.kind = {noise.family.kind!r}"
        yield f"{family} cancels only if every message arrives, and peers may be away; use 'gaussian'."
    if noise.on == "iterate":
        yield "privacy.noise.on = 'iterate' puts noise on messages, which the journal repeats; use 'gradient'."
    if not method_of(config).resumable:
        yield f"privacy.sampling.kind = {sampling!r} cannot survive the crash of one site; use 'poisson' or 'full'."
    if for_science:
        return
    if noise.source == "seeded":
        yield f"privacy.noise.source = 'seeded' is noise that everyone can draw; use 'system', {science}."
    if not noise.kind.adds:
        yield f"{schedule} = 'none' protects nobody; set privacy.epsilon, {science}."
    if config.mode != "sound":
        yield f'mode = {config.mode!r} claims an ε that is not proven; use "sound", {science}.'


# Packing


def pack(
    coordinator: Coordinator,
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    data_dir: Path | None = None,
    out: Path | None = None,
    **terms: Any,
) -> tuple[Study, Path, Plan]:
    """Sign a study for the sites of the newest roster and write it; with the plan, which has its cost.

    The recipe is checked and priced without a record at hand. `terms`: the fields of `Terms`.
    """
    agreed = files.parse(Terms, terms, "the study's terms")
    roster = coordinator.roster()
    members = roster.members(0)
    if len(members) < 2:
        raise UserError(f"{roster.consortium} has {len(members)} sites; a study needs two.")
    for warning in roster.warnings(files.now()):
        if " ended on " in warning:
            raise UserError(warning)
    changes = dict(changes or {})
    if changes.get("nodes", len(members)) != len(members):
        raise UserError(f"nodes = {changes['nodes']}, and the roster has {len(members)} sites; leave it out.")
    facts = {"nodes": len(members), "data.records": [member.records for member in members.values()]}
    config = resolve(named(recipe)[1], {**changes, **facts})
    if isinstance(config.topology, Matrix):  # no site has the file
        edges = read_matrix(config.topology.matrix).tolist()
        config = config.model_copy(update={"topology": replace(config.topology, matrix=edges)})
    refuse_for_peers(config, for_science=agreed.for_science)
    config, data, rows = _without_paths(config, data_dir)
    public = data.without_records(rows, data_dir, config.seed)
    plan = Plan.of(config, cache=_PublicRows(public), data_dir=data_dir)
    stem = re.sub(r"[^\w-]", "-", config.name).strip("-")[:60] or KIND
    version = 1 + len(list(coordinator.folder.glob(f"{stem}-*{ENDING}")))
    from gossamer import __version__

    test = {"digest": rows_digest(rows), "rows": len(rows.x), "file": str(data.test)}
    body = {
        "name": config.name,
        "version": version,
        "issued": files.stamp(files.now()),
        "gossamer": __version__,
        "recipe": config_text(config.model_dump()),
        "signed_roster": roster.content.decode("ascii"),
        "model": first_model(plan).model_dump(),
        "test": test if len(rows.x) else None,
        "terms": agreed.model_dump(),
    }
    content = files.write_signed(KIND, body, coordinator.authority.key.sign)
    path = out or coordinator.folder / f"{stem}-{version}{ENDING}"
    study = Study.of(content, str(path), roster.fingerprint)
    _ = study.config  # what a site would refuse is never written
    files.write(path, content, new=True)
    return study, path, plan


def _without_paths(config: RunConfig, data_dir: Path | None) -> tuple[RunConfig, OwnFile, Records]:
    """Return the configuration without paths, its data, and the public rows as they are."""
    data = config.data
    assert isinstance(data, OwnFile)
    rows = data.public_rows(data_dir)
    if rows is None:
        raise UserError("data.test is not set; name it, or list data.columns or data.features.")
    unordered = data.schema is None and hasattr(data, "features")  # declared columns have their order already
    known: dict[str, Any] = {"features": rows.columns} if unordered else {}
    common = replace(
        data,
        path=f"records-{PLACE}",
        owner=None,
        partition=Even(),
        accounts=None,
        test=None if data.test is None else Path(data.test).name,
        **known,  # every site reads the columns in this order
    )
    privacy = config.privacy.model_copy(update={"account": None})
    changes = {"data": common, "privacy": privacy, "runtime": Runtime()}
    return config.model_copy(update=changes), common, rows


class _PublicRows(DataCache):
    """The public rows in place of everybody's records: no record is here to be read."""

    def __init__(self, dataset: Dataset):
        super().__init__()
        self._public = dataset

    def load(self, config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
        return self._public
