"""How a run begins: afresh, or where another one stopped.

What is on file in a ledger is spent. With noise from the system its key is gone, so a continued run takes up the draws
behind the last one on file, of any node: no (node, step) is ever drawn twice, and what was drawn and lost stays paid
for. Seeded noise gives the same value again, so a continued run repeats the steps since its checkpoint and writes
nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import gossamer
from gossamer.accounting.ledger import LedgerBook
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.reader import PrivateGradient
from gossamer.methods.without_replacement.lemma4 import is_shared
from gossamer.methods.without_replacement.local_models import LocalModels
from gossamer.results import checkpoint
from gossamer.results.certificate import SEEDED, UNIT
from gossamer.results.epsilon_plot import epsilon_plot
from gossamer.results.rundir import RunDirectory, free_path
from gossamer.run.assemble import Outline, Parts
from gossamer.runtime.group import Group, agreed


@dataclass
class Begun:
    """A run, ready for its next round."""

    directory: RunDirectory
    run: str  # its name for itself: in manifest, checkpoints and messages
    book: LedgerBook
    grad: PrivateGradient | LocalModels
    state: Any
    done: int = 0  # rounds
    bytes_sent: int = 0
    seconds: float = 0.0
    lost_draws: int = 0  # spent before a stop and not used


def afresh(parts: Parts, group: Group, out: Path | None) -> Begun:
    """A new run directory. The parts stand before anything is written."""
    o = parts.outline
    _same_everywhere(o, group)
    path = Path(group.join([str(out or free_path(o.config.name))])[0])
    agreed(group, lambda: RunDirectory.create(path), here=group.first_here)
    directory, run = RunDirectory(path), group.join([secrets.token_hex(8)])[0]
    blocks = group.join([(group.machine, group.nodes.start, group.nodes.stop)])
    here = [i for machine, start, stop in blocks if machine == group.machine for i in range(start, stop)]
    if group.first_here:
        directory.write_config(o.asked.model_dump())
        directory.write_json("topology.json", o.topology.to_json())
        directory.write_json("manifest.json", _manifest(parts, run, here))
        directory.write_text("epsilon.svg", epsilon_plot(o.plan, o.config.rounds))
    book = agreed(group, lambda: LedgerBook.create(directory.ledger, _headers(parts), sync=group.spread))
    return Begun(directory, run, book, parts.gradient(book), o.algorithm.init(parts.x0))


def resumed(parts: Parts, group: Group, path: Path) -> Begun:
    """The run of this directory, behind its last checkpoint that all its processes hold."""
    o = parts.outline
    _same_everywhere(o, group)
    _refuse_lost_secrets(o, path)
    directory: RunDirectory = agreed(group, lambda: RunDirectory.resume(path))
    manifest: dict[str, Any] = agreed(group, lambda: _own_manifest(directory, o.asked))
    run = manifest["run"]
    if len(set(group.join([run]))) > 1:
        raise UserError(f"--resume {path} holds different runs on different machines; name the same one.")
    held = agreed(group, lambda: checkpoint.rounds_with(directory.checkpoints, parts.nodes, run=run))
    common = set.intersection(*(set(rounds) for rounds in group.join([held])))
    at = max(common, default=0)
    saved = checkpoint.load(directory.checkpoints, at, parts.nodes) if at else None
    seeded = o.config.privacy.noise.source == "seeded"
    book: LedgerBook = agreed(
        group,
        lambda: LedgerBook.resume(
            directory.ledger,
            _headers(parts),
            sync=group.spread,
            known=saved.ledgers if saved else None,
            repeats=seeded,
        ),
    )
    grad = parts.gradient(book)
    begun = Begun(directory, run, book, grad, o.algorithm.init(parts.x0), done=at)
    if saved is not None:
        begun.bytes_sent, begun.seconds = saved.bytes_sent, saved.seconds
        begun.state = _restore(begun.state, saved.tensors)
        if isinstance(grad, LocalModels):
            grad.restore(_named(saved.tensors, "gradient."), _named(saved.tensors, "private."))
        else:
            grad.restore(_named(saved.tensors, "gradient."))
    if not seeded:
        on_file = max(group.join([book.next_step]))
        begun.lost_draws, grad.draws = max(on_file - grad.draws, 0), max(on_file, grad.draws)
    if group.first_here:
        directory.trim_metrics(at)
        stops = [*manifest.get("resumed", []), {"round": at, "at": _now(), "lost_draws": begun.lost_draws}]
        directory.write_json("manifest.json", {**manifest, "resumed": stops})
    begun.lost_draws += sum(stop["lost_draws"] for stop in manifest.get("resumed", []))
    return begun


def _refuse_lost_secrets(o: Outline, path: Path) -> None:
    """A pass cannot be taken up again: dealt anew, its lots would hold records that earlier ones held already."""
    if o.config.privacy.noise.source == "seeded":
        return  # the same lots again; and where nothing is private, local models are in the checkpoint
    if o.plan.sampling == "one-pass" or is_shared(o.config):
        raise UserError(
            f"--resume {path} cannot continue algorithm.kind = {o.config.algorithm.kind!r}: what its nodes alone know "
            "(the lots of the pass, local models) was kept nowhere; run it anew."
        )


def keep(
    begun: Begun, group: Group, done: int, state: Any, bytes_sent: int, seconds: float, *, all_kept: bool
) -> None:
    """Write a checkpoint after `done` rounds; the one before goes once every process has its part of this one."""
    heads, counts = begun.book.heads(), begun.book.counts()
    checkpoint.save(
        begun.directory.checkpoints,
        done,
        group.nodes,
        sum(group.join([len(group.nodes)])),
        run=begun.run,
        tensors=state,
        facts={
            "bytes_sent": bytes_sent,
            "seconds": seconds,
            "ledgers": {node: [counts[node], heads[node]] for node in group.nodes},
        },
    )
    if not all_kept:
        group.join([done])
        if group.first_here:
            checkpoint.drop_older(begun.directory.checkpoints, done)


def to_keep(state: Any, grad: PrivateGradient | LocalModels, *, seeded: bool) -> dict[str, Any]:
    """What a checkpoint holds. What only its node may know is in it where seeded noise leaves nothing to hide."""
    kept = {key: value for key, value in state._asdict().items() if isinstance(value, Tensor)}
    kept |= {f"gradient.{key}": value for key, value in grad.state().items()}
    if seeded and isinstance(grad, LocalModels):
        kept |= {f"private.{key}": value.clone() for key, value in grad.private_state().items()}
        if hasattr(state.controller, "state"):
            learned = state.controller.state(len(grad.nodes))
            kept |= {f"controller.{key}": value.clone() for key, value in learned.items()}
    return kept


def versions() -> dict[str, str]:
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "dp-accounting", "cryptography")}
    return {"gossamer": gossamer.__version__, "python": platform.python_version(), **libraries}


def _restore(fresh: Any, tensors: dict[str, Any]) -> Any:
    """A state like `fresh` with the saved values."""
    values = {}
    for key, value in fresh._asdict().items():
        if not isinstance(value, Tensor):
            if hasattr(value, "restore"):
                value.restore(_named(tensors, f"{key}."))
            values[key] = value
            continue
        saved = tensors.get(key)
        if saved is None or saved.shape != value.shape:
            raise UserError(
                f"the checkpoint's '{key}' does not fit this configuration's algorithm and model."
            )
        values[key] = saved.to(value)
    return type(fresh)(**values)


def _named(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _digest(config: RunConfig, *, without: set[str]) -> str:
    content = json.dumps(config.model_dump(exclude=without), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _same_everywhere(o: Outline, group: Group) -> None:
    """Processes that were told different things would wait for each other's messages, or misread them."""
    told = group.join([(_digest(o.asked, without={"runtime", "data"}), o.stack.dim, gossamer.__version__)])
    for rank, other in enumerate(told):
        if other != told[0]:
            what = next(
                name
                for name, a, b in zip(("configuration", "model", "version"), told[0], other, strict=True)
                if a != b
            )
            raise UserError(f"rank {rank} has another {what} than rank 0; give all ranks the same.")


def _own_manifest(directory: RunDirectory, asked: RunConfig) -> dict[str, Any]:
    manifest = directory.read_manifest()
    if manifest.get("configuration") != _digest(asked, without={"runtime"}):
        raise UserError(
            f"{directory.path / 'config.toml'} is not what this run was begun with; put it back as it was."
        )
    return manifest


def _headers(parts: Parts) -> dict[int, dict[str, Any]]:
    o = parts.outline
    seeded = o.config.privacy.noise.source == "seeded"
    return {
        i: {
            "delta": o.plan.nodes[i].delta,
            "epsilon_asked": o.plan.nodes[i].epsilon,
            "adjacency": o.plan.adjacency,
            "unit": UNIT,
            "noise": SEEDED if seeded else "system",
            "public": {
                "records": o.plan.nodes[i].records,
                "rate": o.plan.nodes[i].rate,
                "lot": o.plan.nodes[i].lot,
            },
        }
        for i in parts.nodes
    }


def _manifest(parts: Parts, run: str, here: list[int]) -> dict[str, Any]:
    o = parts.outline
    own = o.config.data.own
    return {
        "name": o.config.name,
        "run": run,
        "started": _now(),
        "dimension": o.stack.dim,
        "records_by_node": [node.records for node in o.plan.nodes],
        # A digest of private records would let whoever holds this file test guesses of them.
        "data": {k: v for k, v in parts.dataset.provenance.items() if k != "sha256" or not own},
        "noise": SEEDED if o.config.privacy.noise.source == "seeded" else "system",
        "configuration": _digest(o.asked, without={"runtime"}),
        "ledgers_here": here,  # the other nodes' lie on their own machines
        "versions": versions(),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
