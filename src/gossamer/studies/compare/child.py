"""A process that runs cells, one after the other: a job per line on stdin, an answer per line on stdout."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.run.data import DataCache


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when we stop
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may get between the answers
    import torch

    from gossamer.run.data import DataCache
    from gossamer.studies.compare.batch import quiet_libraries

    quiet_libraries()
    torch.set_num_threads(1)
    parent, cache = os.getppid(), DataCache()
    for line in sys.stdin:
        try:
            run(json.loads(line), cache, parent)
            answer: dict[str, Any] = {"error": None}
        except UserError as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"an error in gossamer: {type(error).__name__}: {error} (see errors.log)"}
        print(json.dumps(answer), file=answers, flush=True)


def run(job: dict[str, Any], cache: DataCache, parent: int) -> None:
    from gossamer.config.schema import RunConfig
    from gossamer.run.assemble import assemble
    from gossamer.run.outline import outline
    from gossamer.run.train import execute

    def orphaned(_: int) -> None:
        # Without a parent nobody knows of this run any more, and a resumed comparison will start it anew.
        if os.getppid() != parent:
            os._exit(1)

    config = RunConfig.model_validate(job["config"])
    data_dir = Path(job["data_dir"]) if job["data_dir"] else None
    o = outline(config, data_dir=data_dir, cache=cache, force=job["force"])
    execute(assemble(o, data_dir=data_dir, cache=cache), out=Path(job["out"]), on_round=orphaned)


if __name__ == "__main__":
    main()
