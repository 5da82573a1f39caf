"""Trainings of an audit that are carried out on an engine: a batch is a job, and what it found comes back as JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.files import read_object
from gossamer.studies.audit import canaries
from gossamer.studies.audit.batches import KeptBatches
from gossamer.studies.audit.procedures import Found
from gossamer.studies.engine.job import Executor, Job
from gossamer.studies.engine.named import find_engine

if TYPE_CHECKING:
    from gossamer.run.data import DataCache

FOUND = "found.json"


@contextmanager
def opened(
    engine: str,
    configs: Sequence[RunConfig],
    folder: Path,
    *,
    canary: str | None,
    module: nn.Module | None = None,
    data_dir: Path | None = None,
) -> Iterator[Executor | None]:
    """None where this process does it itself, with all cores for each batch."""
    found = find_engine(engine)
    if found.here:
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
        found.refuse(config)
    with found.open(folder / "errors.log", data_dir) as executor:
        yield executor


def train_elsewhere(
    executor: Executor,
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
    places = folder / "batches"
    shutil.rmtree(places, ignore_errors=True)  # what an audit that was stopped had not kept
    missing = [(number, size) for number, size in enumerate(sizes) if kept.get(number, size) is None]
    done, settings = sum(sizes) - sum(size for _, size in missing), config.model_dump(exclude_none=True)
    waiting = {}
    for number, size in missing:
        place = places / f"{number}-{size}"
        job = Job("trainings", settings, place, force, {**options, "number": number, "runs": size})
        # Of one that begins anew nothing is here but the mark of the first.
        future = executor.submit(job, lambda place=place: shutil.rmtree(place, ignore_errors=True))  # type: ignore[misc]
        waiting[future] = (number, size, place)
    failed: dict[int, str] = {}
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED)[0]:
            number, size, place = waiting.pop(future)
            if (error := future.result()) is not None:
                failed[number] = error  # the others are kept all the same
                continue
            kept.keep(number, read(place / FOUND, size))
            shutil.rmtree(place)
            done += size
            on_batch(done, sum(sizes))
    shutil.rmtree(places, ignore_errors=True)
    for number, error in sorted(failed.items()):
        raise UserError(f"batch {number} of the audit failed: {error}")


def trainings(config: RunConfig, out: Path, told: dict[str, Any], cache: DataCache) -> None:
    """The job, where it is done: the batch's stream of noise and coins is made there."""
    from gossamer.run.outline import outline
    from gossamer.studies.audit.command import attack_of

    data_dir = Path(told["data_dir"]) if told["data_dir"] else None
    asked = told["options"]
    o = outline(config, data_dir=data_dir, cache=cache, force=told["force"])
    attack = attack_of(o, asked["observer"], asked["canary"], data_dir, asked["records"])
    found = attack.batch(asked["number"], asked["runs"])
    out.mkdir(parents=True)
    line = {
        "scores": found.scores.tolist(),
        "heads": found.heads.astype(int).tolist(),
        "seconds": found.seconds,
        "samples": found.samples,
    }
    (out / FOUND).write_text(json.dumps(line), encoding="utf-8")


def read(path: Path, runs: int) -> Found:
    """As `trainings` wrote it: a score and a coin for each training, all of them numbers."""
    line = read_object(path, "scores", "heads", "seconds", "samples")
    numbers = [*line["scores"], line["seconds"], line["samples"]] if isinstance(line["scores"], list) else []
    sound = (
        len(numbers) == runs + 2
        and all(type(number) in (int, float) and np.isfinite(number) for number in numbers)
        and isinstance(line["heads"], list)
        and len(line["heads"]) == runs
        and all(type(head) is int and head in (0, 1) for head in line["heads"])
    )
    if not sound:
        raise UserError(f"{path} does not hold a score and a coin for each of {runs} trainings.")
    heads = np.array(line["heads"], dtype=bool)
    return Found(
        np.array(line["scores"], dtype=float), heads, np.arange(runs), runs, line["seconds"], line["samples"]
    )
