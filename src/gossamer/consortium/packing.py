"""Packing a study: a recipe checked, priced and signed for the sites of the newest roster, without a record at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gossamer.config.layers import named, resolve
from gossamer.config.schema import RunConfig, Runtime
from gossamer.consortium import files
from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.formats import now, stamp, write_signed
from gossamer.consortium.study import (
    ENDING,
    KIND,
    Body,
    Study,
    Terms,
    TestRows,
    first_model,
    refuse_for_peers,
    rows_digest,
)
from gossamer.data.dataset import Dataset
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.partition import Even
from gossamer.data.tables import Records
from gossamer.errors import UserError
from gossamer.options.sentences import user_error
from gossamer.results.rundir import config_text
from gossamer.topology.kinds import Matrix, read_matrix
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan


def pack(
    coordinator: Coordinator,
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    deadline: float = 30.0,
    late: int = 4,
    tick: float = 0.25,
    for_science: bool = False,
    data_dir: Path | None = None,
    out: Path | None = None,
) -> tuple[Study, Path, Plan]:
    """Sign a study for the sites of the newest roster and write it; with the plan, which has its cost."""
    terms = _terms(deadline, late, tick, for_science)
    roster = coordinator.roster()
    members = roster.members(0)
    if len(members) < 2:
        raise UserError(
            f"{roster.consortium} has {len(members)} sites; a study needs two: invite and approve them first."
        )
    ended = [warning for warning in roster.warnings(now()) if " ended on " in warning]
    if ended:
        raise UserError(ended[0])
    changes = dict(changes or {})
    if changes.get("nodes", len(members)) != len(members):
        raise UserError(f"nodes = {changes['nodes']}, and the roster has {len(members)} sites; leave it out.")
    _, tables = named(recipe)
    facts = {"nodes": len(members), "data.records": [member.records for member in members.values()]}
    config = resolve(tables, {**changes, **facts})
    if isinstance(config.topology, Matrix):  # no site has the file
        rows = read_matrix(config.topology.matrix).tolist()
        config = config.model_copy(update={"topology": replace(config.topology, matrix=rows)})
    refuse_for_peers(config, for_science=for_science)
    config, rows, public = _public(config, data_dir)
    plan = Plan.of(config, cache=_PublicRows(public), data_dir=data_dir)
    folder = coordinator.folder if out is None else out.parent
    version = 1 + len(list(coordinator.folder.glob(f"{_file_name(config.name)}-*{ENDING}")))
    from gossamer import __version__

    body = Body(
        name=config.name,
        version=version,
        issued=stamp(now()),
        gossamer=__version__,
        recipe=config_text(config.model_dump()),
        roster=roster.content.decode("ascii"),
        model=first_model(plan),
        test=None if not len(rows.x) else _test_rows(config, rows),
        terms=terms,
    )
    content = write_signed(KIND, body.model_dump(), coordinator.authority.key.sign)
    path = out or folder / f"{_file_name(config.name)}-{version}{ENDING}"
    study = Study.of(content, str(path), roster.fingerprint)
    _ = study.config  # what a site would refuse is never written
    files.write_new(path, content)
    return study, path, plan


def _terms(deadline: float, late: int, tick: float, for_science: bool) -> Terms:
    given = {"deadline": float(deadline), "late": late, "tick": float(tick), "for_science": for_science}
    try:
        return Terms.model_validate(given)
    except ValidationError as error:
        raise UserError(f"--{user_error(error, given, model=Terms)}") from None


def _public(config: RunConfig, data_dir: Path | None) -> tuple[RunConfig, Records, Dataset]:
    """Return the configuration without paths, the public rows as they are, and as a run sees them."""
    data = config.data
    assert isinstance(data, OwnFile)
    rows = data.public_rows(data_dir)
    if rows is None:
        raise UserError(
            "data.test is not set: without public rows the shape of a record is not known here; name them, or list the "
            "columns in data.columns or data.features."
        )
    named = data.schema is None and hasattr(data, "features")  # declared columns have their order already
    known: dict[str, Any] = {"features": rows.columns} if named else {}
    common = replace(
        data,
        path=f"records-{PLACE}",
        owner=None,
        partition=Even(),
        budget=None,
        test=None if data.test is None else Path(data.test).name,
        **known,  # every site reads the columns in this order, whatever its own file's is
    )
    public = common.without_records(rows, data_dir, config.seed)
    return config.model_copy(update={"data": common, "runtime": Runtime()}), rows, public


class _PublicRows(DataCache):
    """The public rows in place of everybody's records: no record is here to be read."""

    def __init__(self, dataset: Dataset):
        super().__init__()
        self._public = dataset

    def load(self, config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
        return self._public


def _test_rows(config: RunConfig, rows: Records) -> TestRows:
    assert isinstance(config.data, OwnFile)
    return TestRows(digest=rows_digest(rows), rows=len(rows.x), file=str(config.data.test))


def _file_name(name: str) -> str:
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
    return safe.strip("-")[:60] or KIND
