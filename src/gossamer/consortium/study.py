"""A study: all that the sites of a consortium must agree upon before they train together, in one signed file.

The recipe with every value in it, the roster, digests of the model that all begin with and of the public test rows,
and what a round may take. No record, no path of anybody's machine, no code.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gossamer.config.layers import whole
from gossamer.config.schema import RunConfig
from gossamer.consortium import files
from gossamer.consortium.envelope import unpacked
from gossamer.consortium.names import read_stamp
from gossamer.consortium.refusals import refuse_for_peers
from gossamer.consortium.roster import Roster
from gossamer.consortium.site import Site
from gossamer.data.dataset import digest
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.tables import Records
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_values
from gossamer.options.sentences import user_error
from gossamer.results.released import model_digests
from gossamer.training.plan import Plan

KIND, ENDING = "study", ".study"
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(_Strict):
    """What every site begins with."""

    digest: _Digest
    parameters: Annotated[int, Field(ge=1)]


class TestRows(_Strict):
    """The public rows on which models are judged: they travel by another way, and are known by this."""

    __test__ = False  # not a test of ours

    digest: _Digest
    rows: Annotated[int, Field(ge=1)]
    file: str


class Terms(_Strict):
    """What sites agree upon besides the recipe."""

    deadline: Annotated[float, Field(gt=0, le=86400)]  # seconds that a round waits for a neighbour
    late: Annotated[int, Field(ge=0, le=10_000)]  # S: rounds after which a parcel counts no longer
    tick: Annotated[float, Field(ge=0, le=3600)]  # messages leave at multiples of so many seconds
    for_science: bool = False  # may the noise protect nobody?


class Body(_Strict):
    name: str
    version: Annotated[int, Field(ge=1, le=10**6)]
    issued: str
    gossamer: str  # the version that packed it
    recipe: str  # TOML
    roster: str
    model: Model
    test: TestRows | None
    terms: Terms


@dataclass(frozen=True)
class Study:
    """One that was read and verified."""

    content: bytes
    where: str
    body: Body
    roster: Roster  # as it was packed; a newer one may hold by now

    @classmethod
    def read(cls, path: Path, authority: str | None = None) -> Study:
        """`authority`: the fingerprint whose signature counts; whoever's it is, if None."""
        return cls.of(files.read(path), str(path), authority)

    @classmethod
    def of(cls, content: bytes, where: str, authority: str | None = None) -> Study:
        envelope = unpacked(KIND, content, where)
        try:
            body = Body.model_validate(envelope.body)
            read_stamp(body.issued)
        except ValidationError as error:
            raise UserError(f"{where} is damaged: {user_error(error, envelope.body, model=Body)}") from None
        except ValueError:
            raise UserError(f"{where} is damaged: its date is none.") from None
        roster = Roster.read(body.roster.encode(), f"the roster in {where}", authority)
        envelope.check(roster.public_key)
        return cls(content, where, body, roster)

    @property
    def identity(self) -> str:
        """What parcels and certificates call it: the digest of the file."""
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
        """The recipe. Paths in it are nobody's: see `at`."""
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

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """By name: the first is node 0."""
        return tuple(self.roster.members(0))

    def node(self, site: str) -> int:
        if site not in self.sites:
            raise UserError(
                f"{site!r} is not in the study {self.name}; its sites are {', '.join(self.sites)}."
            )
        return self.sites.index(site)

    def check_held(self, held: Roster) -> None:
        """Is the study's roster one that the site's operator has accepted, or an earlier version of it?"""
        if self.roster.version > held.version:
            raise UserError(
                f"{self.where} is for roster {self.roster.version}, and roster {held.version} is accepted here; "
                "`gossamer pki accept` the newest first."
            )
        if [*held.body.history, held.digest][self.roster.version - 1] != self.roster.digest:
            raise UserError(
                f"{self.where} has another roster {self.roster.version} than the one that was accepted here: there are "
                "two of one version; ask whoever runs the consortium by telephone."
            )

    def with_joiner(self, records: int) -> RunConfig:
        """The recipe with one site more, which declares so many records."""
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

    def at(
        self, site: Site, folder: Path, config: RunConfig | None = None, node: int | None = None
    ) -> RunConfig:
        """The recipe as this site runs it, with its own file, test rows and cap; `folder` holds a link to the file.

        `config` and `node`: of a site that joins, as `with_joiner` has it.
        The link has the node's number in its name, as a file per node has; what is spent is kept beside the file.
        """
        config = config or self.config
        data, link = config.data, folder / f"records-{PLACE}"
        assert isinstance(data, OwnFile)
        node = self.node(site.name) if node is None else node
        if PLACE in str(folder):
            raise UserError(
                f"{folder} has {PLACE} in its name, which stands for a node's number; name another place."
            )
        real = Path(str(link).replace(PLACE, str(node)))
        if not site.data.is_file():
            raise UserError(f"{site.path}: data = {site.asked.data!r} is not a file.")
        if real.is_symlink():
            real.unlink()
        real.symlink_to(site.data.resolve())
        caps = [cap for cap in (config.privacy.cap, site.cap) if cap is not None]
        cap = min(caps, default=None)
        here: dict[str, Any] = {
            "path": str(link),
            "test": None if self.body.test is None else self._test_file(site),
        }
        return config.model_copy(
            update={
                "data": replace(data, **here),
                "privacy": config.privacy.model_copy(update={"cap": cap}),
            }
        )

    def check_plan(self, o: Plan) -> None:
        """Does this machine begin with the model that was packed? Another torch may draw another."""
        if first_model(o) != self.body.model:
            raise UserError(
                f"the first model here is not that of {self.where}: another version of torch or gossamer draws "
                f"another; install gossamer {self.body.gossamer} and the versions of its constraints.txt."
            )

    def _own_file(self) -> OwnFile:
        data = self.config.data
        assert isinstance(data, OwnFile)  # or it would have been refused
        return data

    def _test_file(self, site: Site) -> str:
        """The site's copy of the public rows, if it is one."""
        due = self.body.test
        assert due is not None
        path = site.test or site.path.parent / due.file
        if not path.is_file():
            raise UserError(
                f"{site.path}: test is not set and {due.file} is not beside it; the study's {due.rows} public test "
                "rows are needed here."
            )
        found = replace(self._own_file(), test=str(path)).public_rows(None)
        if found is None or rows_digest(found) != due.digest:
            raise UserError(
                f"{path} holds other test rows than the study {self.name} was packed with; get them anew."
            )
        return str(path)


def rows_digest(rows: Records) -> str:
    """Of the rows as they were read, before any arithmetic: the same on every machine."""
    return digest({"x": rows.x, "y": rows.y.astype(str)})


def first_model(o: Plan) -> Model:
    import torch

    frozen = [value.flatten().float() for value in fixed_values(o.module).values()]
    every = torch.cat([o.stack.flatten(o.module), *frozen]).reshape(1, -1)
    return Model(digest=model_digests(every)[0], parameters=o.stack.dim)
