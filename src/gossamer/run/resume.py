"""A run that was stopped goes on, and what a checkpoint keeps for that.

What is on file in a ledger is spent. With noise from the system its key is gone, so a continued run takes up the draws
behind the last one on file, of any node: no (node, step) is ever drawn twice, and what was drawn and lost stays paid
for. Seeded noise gives the same value again, so a continued run repeats the steps since its checkpoint and writes
nothing twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.accounting.ledger import LedgerBook
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.plan.outline import Outline
from gossamer.results import checkpoint
from gossamer.results.rundir import RunDirectory
from gossamer.run.assemble import Parts
from gossamer.run.begin import FORMAT, Run, digest, ledger_headers, require_same_everywhere
from gossamer.run.budget import Accounts, accounts_of, now
from gossamer.runtime.forms import count, hexadecimal, list_of
from gossamer.runtime.group import Group, agreed


def resume(parts: Parts, group: Group, path: Path) -> Run:
    """The run of this directory, behind its last checkpoint that all its processes hold."""
    o = parts.outline
    require_same_everywhere(parts, group)
    _refuse_lost_secrets(o, path)
    directory: RunDirectory = agreed(group, lambda: RunDirectory.resume(path))
    manifest: dict[str, Any] = agreed(group, lambda: _own_manifest(directory, o.asked))
    identity = manifest["run"]
    if len(set(group.join([identity], hexadecimal(16)))) > 1:
        raise UserError(f"--resume {path} holds different runs on different machines; name the same one.")
    held = agreed(group, lambda: checkpoint.rounds_with(directory.checkpoints, parts.nodes, run=identity))
    common = set.intersection(*(set(rounds) for rounds in group.join([held], list_of(count))))
    at = max(common, default=0)
    saved = checkpoint.load(directory.checkpoints, at, parts.nodes) if at else None
    book: LedgerBook = agreed(
        group,
        lambda: LedgerBook.resume(
            directory.ledger,
            ledger_headers(parts),
            sync=group.spread,
            known=saved.ledgers if saved else None,
            repeats=o.seeded,
        ),
    )
    accounts: Accounts = agreed(group, lambda: accounts_of(o, group, identity, parts.data_dir))
    try:
        agreed(group, lambda: accounts.reserve(now()))
    except BaseException:
        book.close()
        raise
    run = Run(directory, identity, book, parts.reader(book), o.algorithm.init(parts.x0), accounts, done=at)
    if saved is not None:
        run.bytes_sent, run.seconds = saved.bytes_sent, saved.seconds
        run.state = o.method.restore(run.state, run.reader, saved.tensors)
    if not o.seeded:
        on_file, drawn = max(group.join([book.next_step], count)), run.reader.draws
        run.lost_draws, run.reader.draws = max(on_file - drawn, 0), max(on_file, drawn)
    if group.first_here:
        directory.trim_metrics(at)
        stops = [*manifest.get("resumed", []), {"round": at, "at": now(), "lost_draws": run.lost_draws}]
        directory.write_json("manifest.json", {**manifest, "resumed": stops})
    run.lost_draws += sum(stop["lost_draws"] for stop in manifest.get("resumed", []))
    return run


def _refuse_lost_secrets(o: Outline, path: Path) -> None:
    if not o.seeded and o.method.lost_at_a_stop():
        raise UserError(
            f"--resume {path} cannot continue algorithm.kind = {o.config.algorithm.kind!r}: what its nodes alone know "
            "(the lots of the pass, local models) was kept nowhere; run it anew."
        )


def _own_manifest(directory: RunDirectory, asked: RunConfig) -> dict[str, Any]:
    manifest = directory.read_manifest()
    if manifest.get("format", 1) != FORMAT:
        raise UserError(
            f"{directory.path} was begun by another version of gossamer, which wrote configurations differently; "
            "continue it with that version, or run it anew."
        )
    if manifest.get("configuration") != digest(asked, without={"runtime"}):
        raise UserError(
            f"{directory.path / 'config.toml'} is not what this run was begun with; put it back as it was."
        )
    return manifest


def keep(
    run: Run,
    group: Group,
    done: int,
    tensors: dict[str, Any],
    bytes_sent: int,
    seconds: float,
    *,
    all_kept: bool,
) -> None:
    """Write a checkpoint after `done` rounds; the one before goes once every process has its part of this one."""
    heads, counts = run.book.heads(), run.book.counts()
    checkpoint.save(
        run.directory.checkpoints,
        done,
        group.nodes,
        sum(group.join([len(group.nodes)], count)),
        run=run.identity,
        tensors=tensors,
        facts={
            "bytes_sent": bytes_sent,
            "seconds": seconds,
            "ledgers": {node: [counts[node], heads[node]] for node in group.nodes},
        },
    )
    if not all_kept:
        group.join([done], count)
        if group.first_here:
            checkpoint.drop_older(run.directory.checkpoints, done)
