"""A process that does jobs, one after the other: an order per line on stdin, an answer per line on stdout."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import UserError
from gossamer.studies.engine.job import Job

if TYPE_CHECKING:
    from gossamer.config.schema import RunConfig
    from gossamer.run.data import DataCache

Order = dict[str, Any]
Task = Callable[["RunConfig", Path, Order, "DataCache"], None]


def order(job: Job, out: Path, data_dir: Path | None) -> Order:
    """A job as a child is told it: `out` is where it writes."""
    return {
        "task": job.task,
        "config": job.config,
        "out": str(out),
        "data_dir": str(data_dir) if data_dir else None,
        "force": job.force,
        "options": job.options,
    }


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when we stop
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may get between the answers
    import torch

    from gossamer.run.data import DataCache
    from gossamer.studies.compare.batch import quiet_libraries
    from gossamer.studies.engine.process import THREADS

    quiet_libraries()
    torch.set_num_threads(THREADS)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    cache = DataCache()
    for line in sys.stdin:
        try:
            run(json.loads(line), cache)
            answer: dict[str, Any] = {"error": None}
        except UserError as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"an error in gossamer: {type(error).__name__}: {error} (see errors.log)"}
        print(json.dumps(answer), file=answers, flush=True)


def end_with_parent(parent: int, seconds: float = 0.5) -> None:
    """Without a parent nobody knows of this job any more, and a study that goes on will begin it anew."""
    while os.getppid() == parent:
        time.sleep(seconds)
    os._exit(1)


def run(told: Order, cache: DataCache) -> None:
    tasks: dict[str, Task] = {"run": train, "trainings": trainings}
    tasks[told["task"]](_config(told), Path(told["out"]), told, cache)


def _config(told: Order) -> RunConfig:
    """Of this machine's user, or, where `withhold` says so, of somebody whose words make no code run here."""
    from gossamer.config.layers import whole
    from gossamer.config.schema import RunConfig

    if told.get("withhold"):
        return whole(told["config"], "the job")
    return RunConfig.model_validate(told["config"])


def trainings(config: RunConfig, out: Path, told: Order, cache: DataCache) -> None:
    """Those of a batch of an audit."""
    from gossamer.studies.audit import elsewhere

    elsewhere.trainings(config, out, told, cache)


def train(config: RunConfig, out: Path, told: Order, cache: DataCache) -> None:
    """A run, through the one door."""
    from gossamer.run.assemble import assemble
    from gossamer.run.outline import outline
    from gossamer.run.train import execute

    data_dir = Path(told["data_dir"]) if told["data_dir"] else None
    o = outline(config, data_dir=data_dir, cache=cache, force=told["force"])
    execute(assemble(o, data_dir=data_dir, cache=cache), out=out)


if __name__ == "__main__":
    main()
