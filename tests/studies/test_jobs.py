"""Jobs in processes of this machine and at the workers of a real Dask scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured
from tests.support.dask_cluster import cluster
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.studies.cells import Cell, Display, run_cells
from gossamer.studies.jobs import Engine, Outcome, settled


def cells(count: int, **changes: Any) -> list[Cell]:
    return [Cell(configured(**{"rounds": 4, "seed": seed, **changes}), f"cell {seed}") for seed in range(count)]


class StartedCells(Display):
    """Notes the cells that were seen to start."""

    def __init__(self, out: Path, total: int):
        super().__init__(out, total, quiet=True)
        self.labels: list[str] = []

    def started(self, cell: Cell) -> None:
        super().started(cell)
        self.labels.append(cell.label)


def run(made: list[Cell], out: Path, engine: Engine) -> tuple[dict[str, str], list[str]]:
    display = StartedCells(out, len(made))
    return run_cells(made, out, engine, display), display.labels


@pytest.mark.parametrize("text", ["local:here", "dask", "dask:", "slurm:x", "dask:a b"])
def test_an_engine_has_a_known_name(text: str) -> None:
    with expect_refusal(key="--engine"):
        Engine(text)


@pytest.mark.parametrize(("text", "jobs"), [("local", 0), ("dask:tcp://x", 2)])
def test_a_number_of_jobs_is_for_processes(text: str, jobs: int) -> None:
    with expect_refusal("--jobs", jobs):
        Engine(text, jobs)


def test_own_records_and_code_stay_here() -> None:
    own = configured(data__kind="csv", data__path="a.csv", data__label="y", data__classes=2)
    code = configured(model__kind="own", model__path="net.py:Net")
    for config, key in ((own, "data.kind csv"), (code, "model.path")):
        Engine().refuse(config)
        with expect_refusal(names=key):
            Engine("dask:tcp://127.0.0.1:1").refuse(config)


def test_a_scheduler_that_does_not_answer_is_a_sentence() -> None:
    with expect_refusal(key="--engine", value="dask:tcp://127.0.0.1:1"):
        Engine("dask:tcp://127.0.0.1:1").check()


@pytest.mark.slow
def test_a_cell_that_fails_stops_no_other(tmp_path: Path) -> None:
    made = cells(3)
    made[1] = Cell(configured(rounds=4, data__kind="mnist", data__train_rows=10**9), "cell 1")
    failed, started = run(made, tmp_path, Engine("local", 2))
    assert list(failed) == [made[1].name]
    assert {"cell 0", "cell 2"} <= set(started)
    assert all((tmp_path / "cells" / made[k].name / "certificate.json").is_file() for k in (0, 2))


def end_process(place: Path) -> Outcome:
    place.mkdir(parents=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome()


@pytest.mark.slow
def test_a_process_that_dies_fails_its_cell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cells(3)
    dying = tmp_path / "cells" / made[0].name
    engine = Engine("local", 1)
    real = engine.open

    class Dying:
        """An executor whose first cell ends its process."""

        def __init__(self, executor: Any):
            self._executor = executor

        def submit(self, job: Any) -> Any:
            if job.args[1] == dying:
                return self._executor.submit(end_process, dying)
            return self._executor.submit(job)

    @contextmanager
    def opened() -> Any:
        with real() as executor:
            yield Dying(executor)

    monkeypatch.setattr(engine, "open", opened)
    failed, _ = run(made, tmp_path, engine)
    assert list(failed) == [made[0].name]
    assert "its process ended" in failed[made[0].name]
    assert all((tmp_path / "cells" / cell.name / "certificate.json").is_file() for cell in made[1:])


@pytest.mark.slow
def test_workers_of_a_scheduler_leave_the_same_runs(tmp_path: Path) -> None:
    made = cells(2, privacy__noise__source="seeded")
    here, there = tmp_path / "here", tmp_path / "there"
    for out in (here, there):
        out.mkdir()
    assert run(made, here, Engine("local", 2))[0] == {}
    with cluster(tmp_path / "dask", 2) as dask:
        assert run(made, there, Engine(dask.engine))[0] == {}
    for cell in made:
        one, other = (out / "cells" / cell.name for out in (here, there))
        assert gossamer.load(one).result["accuracy_mean"] == gossamer.load(other).result["accuracy_mean"]
        assert not (other / "run.key").exists()


def test_a_worker_of_another_version_is_told(tmp_path: Path) -> None:
    from gossamer.studies.jobs import train

    outcome = train({}, tmp_path / "r", None, force=False, version="0.0.0")
    assert "0.0.0; use the same" in str(outcome.error)


def test_a_fault_of_ours_goes_to_the_log(tmp_path: Path) -> None:
    from concurrent.futures import Future

    future: Future[Outcome] = Future()
    future.set_result(Outcome("an error in gossamer: x", "Traceback …\n"))
    assert settled(future, tmp_path / "errors.log").error == "an error in gossamer: x"
    assert (tmp_path / "errors.log").read_text() == "Traceback …\n"


@pytest.mark.slow
def test_a_script_without_a_main_guard_compares(tmp_path: Path) -> None:
    """Processes that ran the user's script again would compare again, without end."""
    script = tmp_path / "study.py"
    script.write_text(
        "import gossamer\n"
        "print('begun')\n"
        "found = gossamer.compare('quickstart', {'rounds': 3}, seeds=2, out='o', jobs=2)\n"
        "print('cells', found.batch.ran if hasattr(found, 'batch') else 'done')\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begun") == 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["workers", "scheduler"])
def test_without_workers_or_scheduler_there_is_an_end(tmp_path: Path, start: Any, victim: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with cluster(tmp_path / "dask", 1, environment={"TMPDIR": str(there)}) as dask:
        words = ["compare", "quickstart", "--out", str(tmp_path / "o"), "--set", "rounds=20000"]
        sweep = start(
            [sys.executable, "-m", "gossamer", *words, "--engine", dask.engine],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "DASK_GOSSAMER__WAIT": "5"},
        )  # fmt: skip
        while not list(there.glob("gossamer-*/run")):  # the worker trains
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.05)
        os.killpg((dask.workers[0] if victim == "workers" else dask.scheduler).pid, signal.SIGKILL)
        said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode != 0
    # Without a scheduler either is seen first: that its connection is lost, or that no worker is there.
    assert any(words in said for words in ("no worker for 5 s", "is gone")[: 1 + (victim == "scheduler")]), said
    assert "Traceback" not in said
