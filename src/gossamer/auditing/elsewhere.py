"""Batches of an audit that trains again, at the workers of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

import gossamer
from gossamer.auditing import canaries
from gossamer.auditing.batches import KeptBatches
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.studies.jobs import Engine, Outcome, guarded, settled

if TYPE_CHECKING:
    from gossamer.auditing.procedures import Found
    from gossamer.training.data import DataCache


@contextmanager
def opened(
    engine: str, configs: Sequence[RunConfig], *, canary: str | None, module: nn.Module | None = None
) -> Iterator[tuple[Engine, Executor] | None]:
    """None where this process does it itself, with all cores for each batch."""
    where = Engine(engine)
    if where.here:
        yield None
        return
    if canary not in canaries.CANARIES:
        raise UserError(
            f"--engine {engine} is for audits by training again, --canary {', '.join(canaries.CANARIES)}; leave it out."
        )
    if module is not None:
        raise UserError(
            f"--engine {engine} sends no code to be run elsewhere, and --module is code; leave one out."
        )
    for config in configs:
        where.refuse(config)
    with where.open() as executor:
        yield where, executor


def train_elsewhere(
    opened: tuple[Engine, Executor],
    folder: Path,
    config: RunConfig,
    kept: KeptBatches,
    sizes: Sequence[int],
    options: dict[str, Any],
    *,
    force: bool,
    on_batch: Callable[[int, int], None],
) -> None:
    """All batches that are not kept yet; each is kept as soon as it is here. `options`: observer, canary, records."""
    engine, executor = opened
    missing = [(number, size) for number, size in enumerate(sizes) if kept.get(number, size) is None]
    done, settings = sum(sizes) - sum(size for _, size in missing), config.model_dump(exclude_none=True)
    waiting = {
        executor.submit(
            trainings, settings, number, size, force=force, version=gossamer.__version__, **options
        ): (number, size)
        for number, size in missing
    }
    failed: dict[int, str] = {}
    while waiting:
        engine.check_workers()
        for future in wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)[0]:
            number, size = waiting.pop(future)
            outcome = settled(future, folder / "errors.log")
            if outcome.error is not None:
                failed[number] = outcome.error  # the others are kept all the same
                continue
            kept.keep(number, outcome.value)
            done += size
            on_batch(done, sum(sizes))
    for number, error in sorted(failed.items()):
        raise UserError(f"batch {number} of the audit failed: {error}")


def trainings(
    settings: dict[str, Any],
    number: int,
    runs: int,
    *,
    observer: str,
    canary: str,
    records: int,
    force: bool,
    version: str,
) -> Outcome:
    """One batch, at a worker: its stream of noise and coins is made there."""

    def work(cache: DataCache) -> Found:
        from gossamer.auditing.command import attack_of
        from gossamer.training.plan import Plan

        o = Plan.of(RunConfig.model_validate(settings), cache=cache, force=force)
        return attack_of(o, observer, canary, None, records).batch(number, runs)

    return guarded(work, version)
