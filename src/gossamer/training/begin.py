"""A new run: its directory, its ledgers, its first state."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gossamer
from gossamer.accounting.ledger import LedgerBook, ledger_paths
from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest, fixed_values
from gossamer.models.networks import Own
from gossamer.results.certificate import SEEDED
from gossamer.results.epsilon_plot import epsilon_plot
from gossamer.results.files import digest_of, digest_of_object
from gossamer.results.rundir import RunDirectory, free_path, read_manifest
from gossamer.results.runlock import RunLock
from gossamer.results.seals import BEGIN, Sealer
from gossamer.runtime.group import Group, agreed
from gossamer.topology.kinds import Matrix
from gossamer.training.assemble import Parts
from gossamer.training.budget import Accounts, accounts_of, now
from gossamer.training.preprocess import bytes_of_preprocessing, preprocessed

FORMAT = 2  # of the configuration whose digest is in the manifest: since 2 it names every value


@dataclass
class Run:
    """A run, ready for its next round."""

    directory: RunDirectory
    identity: str  # its name for itself: in manifest, checkpoints and messages
    book: LedgerBook
    reader: Any  # the private part
    state: Any
    accounts: Accounts  # of the user's own records
    lock: RunLock
    sealer: Sealer | None  # the first process of a machine signs
    parts: Parts  # with the records as the models take them
    signed: bool = True  # False in runs begun before there were keys
    done: int = 0  # rounds
    bytes_sent: int = 0
    seconds: float = 0.0
    lost_draws: int = 0  # spent before a stop and not used

    def close(self) -> None:
        self.book.close()
        self.lock.close()


def begin(parts: Parts, group: Group, out: Path | None) -> Run:
    """A new run directory. The parts stand before anything is written."""
    o = parts.plan
    require_same_everywhere(parts, group)
    # A step on zeros: a method that draws more often than it declares is refused before anything is written or spent.
    o.method.bytes_per_round(o.algorithm, o.topology, o.stack.dim)
    # Where a host keeps its files is its own affair: of a run without --out only the last word of its name is shared.
    name = group.join([free_path(o.config.name).name])[0]
    path = out or free_path(o.config.name).with_name(name)
    identity = group.join([secrets.token_hex(8)])[0]
    accounts: Accounts = agreed(group, lambda: accounts_of(o, group, identity, parts.data_dir))
    agreed(group, lambda: accounts.refuse_unlisted(path.parent, parts.data_dir))
    try:
        agreed(group, lambda: accounts.reserve(now()))
        return _begin(parts, group, path, identity, accounts)
    except BaseException:
        accounts.settle(now(), ledgers=accounts.ledgers)
        raise


def _begin(parts: Parts, group: Group, path: Path, identity: str, accounts: Accounts) -> Run:
    agreed(group, lambda: RunDirectory.create(path), here=group.first_here)
    lock = RunLock(path, group.nodes, whole=group.first_here)
    try:
        agreed(group, lock.take)
        return _written(parts, group, RunDirectory(path), identity, accounts, lock)
    except BaseException:
        lock.close()
        raise


def _written(
    parts: Parts, group: Group, directory: RunDirectory, identity: str, accounts: Accounts, lock: RunLock
) -> Run:
    o = parts.plan
    nonce = group.join([secrets.token_hex(16)])[0]
    here = _blocks_of_machine(group)
    sealer: Sealer | None = agreed(
        group, lambda: _first_files(parts, directory, identity, nonce, here), here=group.first_here
    )
    # From this machine's own file: of the others' keys nobody here has any use.
    name = {"run": identity, "nonce": nonce, "key": read_manifest(directory.path)["key"]}
    ledger = ledger_paths(directory.path, here)[group.nodes]
    book = agreed(group, lambda: LedgerBook.create(ledger, ledger_headers(parts, name), sync=group.spread))
    try:
        sent = bytes_of_preprocessing(parts)
        parts = preprocessed(parts, group, book, directory)
        state = o.algorithm.init(parts.x0)
        reader = parts.agreed(group, identity, 0).reader(book)
    except BaseException:
        if any(book.counts().values()):  # what is found on the records is released before the run has begun
            accounts.ledgers = directory.path
        book.close()
        raise
    return Run(directory, identity, book, reader, state, accounts, lock, sealer, parts, bytes_sent=sent)


def _first_files(
    parts: Parts, directory: RunDirectory, identity: str, nonce: str, here: list[range]
) -> Sealer:
    """What the processes of a machine share. The manifest comes last: with it a run has begun."""
    o = parts.plan
    try:
        directory.write_config(o.asked.model_dump())
        directory.write_json("topology.json", o.topology.to_json())
        directory.write_text("epsilon.svg", epsilon_plot(o.privacy, o.config.rounds))
        sealer = Sealer.create(directory.path, identity)
        manifest = _manifest(parts, identity, here) | {"nonce": nonce, "key": sealer.public}
        if (mark := records_mark(parts, sealer)) is not None:
            manifest["records_mark"] = mark
        files = {
            name: digest_of(directory.path / name) for name in ("config.toml", "topology.json", "epsilon.svg")
        }
        said = json.loads(json.dumps(manifest))
        sealer.seal(BEGIN, 0, {}, files, manifest=digest_of_object(said, without=("resumed",)))
        directory.write_json("manifest.json", manifest)
    except OSError as error:
        raise unwritable(directory.path, error) from None
    return sealer


def records_mark(parts: Parts, sealer: Sealer) -> str | None:
    """By what a run that goes on knows its private records again; None where they are public, or not all are here.

    Other records would be other runs: a hold-out of today may hold what was trained on before, and no ε covers it.
    """
    o, digest_of_records = parts.plan, parts.dataset.provenance.get("sha256")
    if not o.config.data.own or digest_of_records is None or len(parts.nodes) != o.config.nodes:
        return None
    return sealer.mark(digest_of_records)


def unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written: {error.strerror or error}; mend that and start again.")


def nodes_here(group: Group) -> list[int]:
    """Those whose ledgers lie on this machine."""
    return [node for nodes in _blocks_of_machine(group) for node in nodes]


def _blocks_of_machine(group: Group) -> list[range]:
    """What each process of this machine hosts."""
    machines = group.join([group.machine])
    return [nodes for nodes, one in zip(group.blocks, machines, strict=True) if one == group.machine]


def require_same_everywhere(parts: Parts, group: Group) -> None:
    """Processes with different settings would wait for each other's messages, or misread them."""
    o = parts.plan
    if group.spread and o.privacy.copies > 1:
        sites = o.config.privacy.max_sites
        said = (
            f"privacy.unit.max_sites = {sites} has the same person"
            if sites > 1
            else f"data.partition.kind = {o.config.data.partition.kind!r} puts copies of a record"
        )
        raise UserError(
            f"{said} on several nodes, whose releases are priced together, and their ledgers would lie on several "
            "machines; use one machine, or have each record or person on one node."
        )
    own = o.config.data.own
    # Names and order of the columns, and what was declared of them: weights that mean other columns elsewhere learn
    # nothing, and nobody is told.
    schema = datasets.options(o.config.data).get("columns") if own else None
    names = json.dumps([parts.dataset.columns, *([schema] if schema else [])])
    columns = hashlib.sha256(names.encode()).hexdigest()
    here = (
        digest(_without_folders(o.asked), without={"runtime", "data"} if own else {"runtime"}),
        hashlib.sha256(f"{o.stack.dim} {fixed_digest(o.module)}".encode()).hexdigest(),
        gossamer.__version__,
        # Of records that are public; a digest of private ones would let everyone test guesses of them.
        None if own else parts.dataset.provenance.get("sha256"),
        columns,
    )
    everywhere = group.join([here])
    for rank, other in enumerate(everywhere):
        for name, first, found in zip(
            ("configuration", "model", "version", "data set", "columns"), everywhere[0], other, strict=True
        ):
            if first != found and name == "columns":
                raise UserError(
                    f"rank {rank} has other names, another order or another declaration of columns than rank 0; name "
                    "them in data.features or data.columns, the same on all ranks."
                )
            if first != found:
                what = _different_keys(o.asked, own, group, rank) if name == "configuration" else name
                raise UserError(f"rank {rank} has another {what} than rank 0; give all ranks the same.")


def _different_keys(config: RunConfig, own: bool, group: Group, rank: int) -> str:
    """The dotted keys in which that rank's configuration is another than the first's; all ranks ask for this at once.

    Only digests travel, and none of what is a host's own: the values stay where they are.
    """
    content = _without_folders(config).model_dump(
        mode="json", exclude={"runtime", "data"} if own else {"runtime"}
    )
    here = sorted([key, _digest_of([key, value])] for key, value in _flat(content))
    said = [dict(one) for one in group.join([here])]
    first, other = said[0], said[rank] if rank < len(said) else {}
    keys = sorted(key for key in first.keys() | other.keys() if first.get(key) != other.get(key))
    if not keys:
        return "configuration"
    more = f" (and {len(keys) - 3} more keys)" if len(keys) > 3 else ""
    return f"{', '.join(keys[:3])}{more}"


def _without_folders(config: RunConfig) -> RunConfig:
    """Where a host keeps its files is its own affair."""
    update: dict[str, Any] = {}
    if isinstance(config.model, Own) and config.model.path is not None:
        update["model"] = replace(config.model, path=Path(config.model.path).name)
    if isinstance(config.topology, Matrix) and isinstance(config.topology.matrix, str):
        update["topology"] = replace(config.topology, matrix=Path(config.topology.matrix).name)
    return config.model_copy(update=update)


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest(config: RunConfig, *, without: set[str]) -> str:
    content = json.dumps(config.model_dump(exclude=without), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def ledger_headers(parts: Parts, name: dict[str, str]) -> dict[int, dict[str, Any]]:
    """`name`: the run's, its nonce, and the key that it signs by."""
    o = parts.plan
    common = {
        "adjacency": o.privacy.adjacency,
        "unit": o.privacy.unit,
        **({"copies": o.privacy.copies} if o.privacy.copies > 1 else {}),
        "noise": SEEDED if o.seeded else "system",
        **o.privacy.noise.header,
    }
    made: dict[tuple[Any, ...], dict[str, Any]] = {}  # equal nodes share one
    found = {}
    for i in parts.nodes:
        node = o.privacy.nodes[i]
        alike = (node.delta, node.epsilon, node.records, node.rate, node.lot)
        if alike not in made:
            public = {"records": node.records, "rate": node.rate, "lot": node.lot}
            made[alike] = {
                **name, "delta": node.delta, "epsilon_asked": node.epsilon, **common, "public": public,
            }  # fmt: skip
        found[i] = made[alike]
    return found


def _manifest(parts: Parts, identity: str, here: list[range]) -> dict[str, Any]:
    o = parts.plan
    own = o.config.data.own
    return {
        "name": o.config.name,
        "run": identity,
        "started": now(),
        "dimension": o.stack.dim,
        **({"frozen": fixed_digest(o.module)} if fixed_values(o.module) else {}),
        "records_by_node": [node.records for node in o.privacy.nodes],
        # A digest of private records would let whoever holds this file test guesses of them.
        "data": {k: v for k, v in parts.dataset.provenance.items() if k != "sha256" or not own},
        "noise": SEEDED if o.seeded else "system",
        "format": FORMAT,
        "configuration": digest(o.asked, without={"runtime"}),
        "ledgers_here": [[nodes.start, nodes.stop - 1] for nodes in here],  # others are on their own machines
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "dp-accounting", "cryptography")}
    return {"gossamer": gossamer.__version__, "python": platform.python_version(), **libraries}
