"""A run that was stopped goes on, and what a checkpoint keeps for that.

What is on file in a ledger is spent. With noise from the system its key is gone, so a continued run takes up the draws
behind the last one on file, of any node: no (node, step) is ever drawn twice, and what was drawn and lost stays paid
for. Seeded noise gives the same value again, so a continued run repeats the steps since its checkpoint and writes
nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.accounting.ledger import LedgerBook, ledger_paths
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest
from gossamer.results import checkpoint
from gossamer.results.files import digest_of
from gossamer.results.rundir import RunDirectory, ledgers_here
from gossamer.results.runlock import RunLock
from gossamer.results.seals import CHECKPOINT, RESUMED, SEALS, Heads, Sealer, read_seals
from gossamer.results.verify import check_sealed
from gossamer.runtime.group import Group, agreed
from gossamer.training.assemble import Parts
from gossamer.training.begin import (
    FORMAT,
    Run,
    digest,
    ledger_headers,
    records_mark,
    require_same_everywhere,
    unwritable,
)
from gossamer.training.budget import Accounts, accounts_of, now
from gossamer.training.plan import Plan
from gossamer.training.preprocess import preprocessed

# Sets rounds done and the reader's own state from somewhere else than a checkpoint.
TakeUp = Callable[[Run], None]


def resume(parts: Parts, group: Group, path: Path, take_up: TakeUp | None = None) -> Run:
    """The run of this directory, behind its last checkpoint that all its processes hold, or as `take_up` knows it."""
    o = parts.plan
    require_same_everywhere(parts, group)
    _refuse_lost_secrets(o, path)
    directory: RunDirectory = agreed(group, lambda: RunDirectory.resume(path))
    # before the lock: a mistake leaves nothing behind, not even a lock's file
    agreed(group, lambda: own_manifest(directory, o.asked, o.module))
    lock = RunLock(path, group.nodes, whole=group.first_here)
    try:
        agreed(group, lock.take)
        return _resume(parts, group, directory, lock, take_up)
    except BaseException:
        lock.close()
        raise


def _resume(
    parts: Parts, group: Group, directory: RunDirectory, lock: RunLock, take_up: TakeUp | None
) -> Run:
    o, path = parts.plan, directory.path
    manifest: dict[str, Any] = agreed(group, lambda: own_manifest(directory, o.asked, o.module))
    identity = manifest["run"]
    if len(set(group.join([identity]))) > 1:
        raise UserError(f"--resume {path} holds different runs on different machines; name the same one.")
    name = {key: manifest[key] for key in ("run", "nonce", "key")} if "key" in manifest else {}
    held = agreed(group, lambda: checkpoint.rounds_with(directory.checkpoints, parts.nodes, run=identity))
    common = set.intersection(*(set(rounds) for rounds in group.join([held])))
    at = max(common, default=0)
    saved = agreed(group, lambda: checkpoint.load(directory.checkpoints, at, parts.nodes) if at else None)
    book: LedgerBook = agreed(
        group,
        lambda: LedgerBook.resume(
            ledger_paths(path, ledgers_here(manifest)),
            ledger_headers(parts, name),
            sync=group.spread,
            known=saved.ledgers if saved else None,
            repeats=o.seeded,
        ),
    )
    try:
        sealer: Sealer | None = agreed(group, lambda: _sealer(path, manifest, saved), here=group.first_here)
        if sealer is not None:
            _same_records(parts, sealer, manifest, path)
        accounts: Accounts = agreed(group, lambda: accounts_of(o, group, identity, parts.data_dir))
        agreed(group, lambda: accounts.refuse_unlisted(path.parent, parts.data_dir))
        agreed(group, lambda: accounts.reserve(now()))
        parts = agreed(group, lambda: preprocessed(parts, group, book, directory))
        reader = parts.agreed(group, identity, 1 + len(manifest.get("resumed", []))).reader(book)
        run = Run(
            directory, identity, book, reader, o.algorithm.init(parts.x0), accounts, lock, sealer, parts,
            signed=bool(name), done=at,
        )  # fmt: skip
        if take_up is not None:
            take_up(run)
        _take_up(parts, group, run, saved, manifest)
    except BaseException:
        book.close()
        raise
    return run


def _take_up(
    parts: Parts, group: Group, run: Run, saved: checkpoint.Checkpoint | None, manifest: dict[str, Any]
) -> None:
    """The state, and the draws behind the last one on file."""
    o, directory, at = parts.plan, run.directory, run.done
    if saved is not None:
        run.bytes_sent, run.seconds = saved.bytes_sent, saved.seconds
        run.state = agreed(group, lambda: _restored(o, run, saved))
    if not o.seeded:
        on_file, drawn = max(group.join([run.book.next_draw])), run.reader.draws
        run.lost_draws, run.reader.draws = max(on_file - drawn, 0), max(on_file, drawn)
    stops = [*manifest.get("resumed", []), {"round": at, "at": now(), "lost_draws": run.lost_draws}]

    def note() -> None:
        try:
            directory.trim_metrics(at)
            directory.write_json("manifest.json", {**manifest, "resumed": stops})
        except OSError as error:
            raise unwritable(directory.path, error) from None

    agreed(group, note, here=group.first_here)
    seal(
        run,
        group,
        RESUMED,
        at,
        {f.name: digest_of(f) for f in checkpoint.files_of(directory.checkpoints, at)},
    )
    run.lost_draws += sum(stop["lost_draws"] for stop in manifest.get("resumed", []))


def _restored(o: Plan, run: Run, saved: checkpoint.Checkpoint) -> Any:
    try:
        return o.method.restore(run.state, run.reader, saved.tensors)
    except (KeyError, RuntimeError, TypeError) as error:
        raise UserError(
            f"{run.directory.checkpoints} holds another kind of run's state after round {saved.round} ({error}); "
            "put the files back."
        ) from None


def _sealer(path: Path, manifest: dict[str, Any], saved: checkpoint.Checkpoint | None) -> Sealer | None:
    """None where the run was begun before there were keys."""
    if "key" not in manifest:
        return None
    identity, public = manifest["run"], manifest["key"]
    seals, _, _ = read_seals(path, identity, public, lenient=True)
    if saved is not None and len(seals) < saved.seals:
        raise UserError(
            f"{path / SEALS} no longer holds the {saved.seals} seals that a checkpoint saw there."
        )
    check_sealed(path, manifest, seals)
    return Sealer.resume(path, identity, public)


def _same_records(parts: Parts, sealer: Sealer, manifest: dict[str, Any], path: Path) -> None:
    marked, here = manifest.get("records_mark"), records_mark(parts, sealer)
    if None not in (marked, here) and marked != here:
        raise UserError(
            f"--resume {path} was begun with other records, or with these in another order; give it the same again."
        )


def _refuse_lost_secrets(o: Plan, path: Path) -> None:
    if not o.seeded and o.method.lost_at_a_stop():
        raise UserError(
            f"--resume {path} cannot continue algorithm.kind = {o.config.algorithm.kind!r} with "
            f"privacy.sampling.kind = {o.config.privacy.sampling.kind!r}: its secret state (the lots of the pass, "
            "local models) is stored nowhere; run it again from the start."
        )


def own_manifest(directory: RunDirectory, asked: RunConfig, module: nn.Module) -> dict[str, Any]:
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
    if "frozen" in manifest and manifest["frozen"] != fixed_digest(module):
        raise UserError(
            f"{directory.path} was begun with other frozen parameters or buffers than the module has now; resume it "
            "with the same module."
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
    layout: dict[str, Any],
    all_kept: bool,
) -> None:
    """Write a checkpoint after `done` rounds; the one before goes once every process has its part of this one."""
    path, found = checkpoint.save(
        run.directory.checkpoints,
        done,
        group.nodes,
        sum(group.join([len(group.nodes)])),
        run=run.identity,
        tensors=tensors,
        facts={
            "bytes_sent": bytes_sent,
            "seconds": seconds,
            "layout": layout,
            "ledgers": run.book.marks(),
            "seals": run.sealer.made if run.sealer is not None else 0,
        },
    )
    seal(run, group, CHECKPOINT, done, {path.name: found})
    if not all_kept:
        group.join([done])
        if group.first_here:
            checkpoint.drop_older(run.directory.checkpoints, done)


def seal(
    run: Run,
    group: Group,
    kind: str,
    done: int,
    files: dict[str, str],
    *,
    folder: str = "checkpoints/",
    **more: str | None,
) -> None:
    """Sign what the processes of this machine have on file; `files`: of this process in `folder`, name → digest."""
    if not run.signed:
        return
    marks = [(first, lines, head) for first, (lines, head) in run.book.marks().items()]
    everywhere = group.join([(group.machine, marks)])  # a site's group knows nothing of the others
    written = group.join([(group.machine, list(files.items()))])
    ours = [item for machine, items in written if machine == group.machine for item in items]
    sealed = {f"{folder}{name}": found for name, found in ours}
    here: Heads = {
        first: (lines, head)
        for nodes, (machine, said) in zip(group.blocks, everywhere, strict=True)
        if machine == group.machine
        for first, lines, head in said
        if first in nodes
    }
    if run.sealer is not None:
        run.sealer.seal(kind, done, here, sealed, **more)
