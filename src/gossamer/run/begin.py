"""A new run: its directory, its ledgers, its first state."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossamer
from gossamer.accounting.ledger import LedgerBook
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.plan.outline import Outline
from gossamer.results.certificate import SEEDED, UNIT
from gossamer.results.epsilon_plot import epsilon_plot
from gossamer.results.rundir import RunDirectory, free_path
from gossamer.run.assemble import Parts
from gossamer.run.budget import Accounts, accounts_of, now
from gossamer.runtime.group import Group, agreed

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
    done: int = 0  # rounds
    bytes_sent: int = 0
    seconds: float = 0.0
    lost_draws: int = 0  # spent before a stop and not used


def begin(parts: Parts, group: Group, out: Path | None) -> Run:
    """A new run directory. The parts stand before anything is written."""
    o = parts.outline
    require_same_everywhere(o, group)
    path = Path(group.join([str(out or free_path(o.config.name))])[0])
    identity = group.join([secrets.token_hex(8)])[0]
    accounts: Accounts = agreed(group, lambda: accounts_of(o, group, identity, parts.data_dir))
    try:
        agreed(group, lambda: accounts.reserve(now()))
        return _begin(parts, group, path, identity, accounts)
    except BaseException:
        accounts.settle(now(), ledgers=None)  # nothing was released
        raise


def _begin(parts: Parts, group: Group, path: Path, identity: str, accounts: Accounts) -> Run:
    o = parts.outline
    agreed(group, lambda: RunDirectory.create(path), here=group.first_here)
    directory = RunDirectory(path)
    blocks = group.join([(group.machine, group.nodes.start, group.nodes.stop)])
    here = [i for machine, start, stop in blocks if machine == group.machine for i in range(start, stop)]
    if group.first_here:
        directory.write_config(o.asked.model_dump())
        directory.write_json("topology.json", o.topology.to_json())
        directory.write_json("manifest.json", _manifest(parts, identity, here))
        directory.write_text("epsilon.svg", epsilon_plot(o.plan, o.config.rounds))
    book = agreed(
        group, lambda: LedgerBook.create(directory.ledger, ledger_headers(parts), sync=group.spread)
    )
    return Run(directory, identity, book, parts.reader(book), o.algorithm.init(parts.x0), accounts)


def require_same_everywhere(o: Outline, group: Group) -> None:
    """Processes with different settings would wait for each other's messages, or misread them."""
    # Names and order of the columns: weights that mean other columns elsewhere learn nothing, and nobody is told.
    names = json.dumps(o.dataset.columns if o.dataset else ())
    columns = hashlib.sha256(names.encode()).hexdigest()
    here = (digest(o.asked, without={"runtime", "data"}), o.stack.dim, gossamer.__version__, columns)
    everywhere = group.join([here])
    for rank, other in enumerate(everywhere):
        for name, first, found in zip(
            ("configuration", "model", "version", "columns"), everywhere[0], other, strict=True
        ):
            if first != found and name == "columns":
                raise UserError(
                    f"rank {rank} has other names or another order of columns than rank 0; name them in data.features, "
                    "the same on all ranks."
                )
            if first != found:
                raise UserError(f"rank {rank} has another {name} than rank 0; give all ranks the same.")


def digest(config: RunConfig, *, without: set[str]) -> str:
    content = json.dumps(config.model_dump(exclude=without), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def ledger_headers(parts: Parts) -> dict[int, dict[str, Any]]:
    o = parts.outline
    return {
        i: {
            "delta": o.plan.nodes[i].delta,
            "epsilon_asked": o.plan.nodes[i].epsilon,
            "adjacency": o.plan.adjacency,
            "unit": UNIT,
            "noise": SEEDED if o.seeded else "system",
            "public": {
                "records": o.plan.nodes[i].records,
                "rate": o.plan.nodes[i].rate,
                "lot": o.plan.nodes[i].lot,
            },
        }
        for i in parts.nodes
    }


def _manifest(parts: Parts, identity: str, here: list[int]) -> dict[str, Any]:
    o = parts.outline
    own = o.config.data.own
    return {
        "name": o.config.name,
        "run": identity,
        "started": now(),
        "dimension": o.stack.dim,
        "records_by_node": [node.records for node in o.plan.nodes],
        # A digest of private records would let whoever holds this file test guesses of them.
        "data": {k: v for k, v in parts.dataset.provenance.items() if k != "sha256" or not own},
        "noise": SEEDED if o.seeded else "system",
        "format": FORMAT,
        "configuration": digest(o.asked, without={"runtime"}),
        "ledgers_here": here,  # the other nodes' lie on their own machines
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "dp-accounting", "cryptography")}
    return {"gossamer": gossamer.__version__, "python": platform.python_version(), **libraries}
