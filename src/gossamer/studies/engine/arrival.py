"""What came back from elsewhere: marked while it is out, and held against what was asked for before it is taken."""

from __future__ import annotations

import time
from pathlib import Path

from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.rundir import RunDirectory
from gossamer.results.verify import verify_files
from gossamer.studies.engine.job import Job

BEGUN = "elsewhere.json"  # a folder that holds nothing else: begun at a worker, and what it left has not come back
ARRIVED = ".arriving-"


def begun_elsewhere(place: Path, worker: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    RunDirectory(place).write_json(BEGUN, {"begun": at, "worker": worker[:200]})


def take_the_marks_place(arriving: Path, place: Path) -> None:
    """Nothing but the mark is ever removed."""
    if place.exists():
        (place / BEGUN).unlink(missing_ok=True)
        place.rmdir()
    arriving.rename(place)


def refuse_arrived(job: Job, folder: Path) -> None:
    """Raises where the files are no finished run of this very configuration, sealed by its own key."""
    if job.task != "run":
        return
    if not (folder / "certificate.json").is_file():
        raise UserError("it has no certificate.")
    if stored(folder / "config.toml").model_dump() != RunConfig.model_validate(job.config).model_dump():
        raise UserError("it is a run of another configuration.")
    verdict = verify_files(folder)
    if not verdict.signed:
        raise UserError(f"it is not signed: {verdict.unsigned_because}.")
