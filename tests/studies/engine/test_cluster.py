"""Sweeps at a real scheduler and its workers: nothing is shared, workers die, and the figures are those of one machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import scripted
from tests.support.configurations import configured

import gossamer
from gossamer.errors import UserError
from gossamer.studies.engine import at_worker, cluster
from gossamer.studies.engine.job import Job
from gossamer.studies.engine.named import find_engine

distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

from tests.support.dask_cluster import Cluster, certificates  # noqa: E402
from tests.support.dask_cluster import cluster as started  # noqa: E402

SHORT: dict[str, Any] = {"rounds": 3, "privacy.noise.source": "seeded"}


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scheduler and a worker in this process, whose jobs answer at once."""
    scripted(monkeypatch)
    monkeypatch.setattr(at_worker, "_FREE", [])
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options, protocol="tcp", silence_logs=50) as made:
        yield f"dask:{made.scheduler_address}"
    for seat in at_worker._FREE:
        seat.child.stop()
        seat.log.close()


def test_a_notebooks_own_loop_is_no_hindrance(at_hand: str, tmp_path: Path) -> None:
    async def cell() -> str:
        with find_engine(at_hand).open(tmp_path / "errors.log", None):
            return "reached"

    # Apart, for the process that tests may have a loop of its own.
    with ThreadPoolExecutor(1) as notebook:
        assert notebook.submit(lambda: asyncio.run(cell())).result() == "reached"


def test_a_job_goes_out_and_its_files_come_back(at_hand: str, tmp_path: Path) -> None:
    begun: list[str] = []
    config = configured().model_dump(exclude_none=True)
    with find_engine(at_hand).open(tmp_path / "errors.log", None) as executor:
        assert executor.at_a_time(5) == "1 at a time at 1 worker"

        def submit(come_to: str, **files: str) -> Any:
            job = Job("other", config, tmp_path / come_to, options={"come to": come_to, "files": files})
            return executor.submit(job, lambda: begun.append(come_to))

        found = [
            submit("fine", a="1"),
            submit("no room", b="2"),
            submit("talks"),
            submit("unused", **{"../x": "3"}),
        ]
        answers = [future.result(timeout=20) for future in found]
    assert answers == [None, "no room", None, "unused"]
    assert begun == ["fine", "no room", "talks", "unused"]
    assert (tmp_path / "no room" / "b").read_text() == "2"  # what it had released is on file
    assert (tmp_path / "errors.log").read_text() == "some words\n"
    assert not (tmp_path / "x").exists()


def test_nobody_there_is_a_sentence_and_no_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for address in (f"tcp://127.0.0.1:{port}", "ftp://127.0.0.1:1", f"tls://127.0.0.1:{port}"):
        sentence = r"--engine dask:.*: no scheduler answers there within 0\.3 s \(.*\); start one with `dask"
        with pytest.raises(UserError, match=sentence), find_engine(f"dask:{address}").open(tmp_path, None):
            pass


def compare(out: Path, engine: str = "local", seeds: int = 2, **more: Any) -> Any:
    return gossamer.compare("quickstart", SHORT | more, seeds=seeds, out=out, engine=engine)


def figures(out: Path) -> dict[str, Any]:
    """All that must not depend on where a cell ran."""
    found = {}
    for cell in sorted((out / "cells").iterdir()):
        rows = [json.loads(line) for line in (cell / "metrics.jsonl").read_text().splitlines()]
        found[cell.name] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
        stated = json.loads((cell / "certificate.json").read_text())
        found[cell.name].append({k: stated[k] for k in ("epsilon_proven", "epsilon_by_node", "draws")})
    return found


def runs(out: Path) -> dict[str, str]:
    """cell → its run's own name, which a second run of it would not have."""
    return {
        path.parent.name: json.loads(path.read_text())["run"]
        for path in (out / "cells").glob("[!.]*/manifest.json")  # not what is just arriving
        if (path.parent / "certificate.json").is_file()
    }


def wait_for(condition: Any, seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_worker_costs_its_own_cell_and_no_other(tmp_path: Path, start: Any) -> None:
    out = tmp_path / "out"
    with started(tmp_path / "cluster", 2) as there:
        command = [
            sys.executable,
            "-m",
            "gossamer",
            "compare",
            "quickstart",
            "--seeds",
            "6",
            "--out",
            str(out),
        ]
        command += ["--set", "rounds=600", "--set", "privacy.noise.source=seeded", "--engine", there.engine]
        sweep = start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(lambda: len(runs(out)) >= 2)
        finished = runs(out)
        wait_for(lambda: len(list((out / "cells").glob("*/elsewhere.json"))) == 2)
        os.kill(there.workers[0].pid, signal.SIGKILL)
        said, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert "its worker was lost; it begins anew elsewhere" in said, said
    after = runs(out)
    assert len(after) == 6
    assert {name: after[name] for name in finished} == finished  # none of them was run again
    lost = list((out / "set-aside").iterdir())
    assert len(lost) == 1
    assert [path.name for path in lost[0].iterdir()] == ["elsewhere.json"]
    compare(tmp_path / "local", seeds=6, rounds=600)
    assert figures(out) == figures(tmp_path / "local")


@pytest.mark.slow
def test_an_interrupted_sweep_stops_its_workers_and_goes_on(tmp_path: Path, start: Any) -> None:
    out = tmp_path / "out"
    with started(tmp_path / "cluster", 1) as there:
        command = [
            sys.executable,
            "-m",
            "gossamer",
            "compare",
            "quickstart",
            "--seeds",
            "2",
            "--out",
            str(out),
        ]
        command += ["--set", "rounds=2000", "--engine", there.engine]
        sweep = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(lambda: list((out / "cells").glob("*/elsewhere.json")))
        children = Path(f"/proc/{there.workers[0].pid}/task").glob("*/children")
        wait_for(lambda: any(path.read_text().split() for path in children))
        sweep.send_signal(signal.SIGINT)
        sweep.communicate(timeout=60)
        assert sweep.returncode not in (0, None)
        pids = [
            pid
            for path in Path(f"/proc/{there.workers[0].pid}/task").glob("*/children")
            for pid in path.read_text().split()
        ]
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30)
        found = compare(tmp_path / "again", there.engine)  # the worker is as good as before
        assert found.failed == {}


@pytest.mark.slow
def test_without_scheduler_or_workers_there_is_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    import dask

    with started(tmp_path / "cluster", 0) as there, dask.config.set({"gossamer.wait": 1}):
        with pytest.raises(UserError, match=r"no worker within 1 s; start one with `dask worker tcp:"):
            compare(tmp_path / "none", there.engine)
        assert not (tmp_path / "none").exists()
        there.add_worker()
        with dask.config.set({"gossamer.wait": 60}):
            assert compare(tmp_path / "one", there.engine, seeds=1).failed == {}
        environment = {**os.environ, "DASK_GOSSAMER__WAIT": "3"}
        for victim in (there.workers[0], there.scheduler):
            out = tmp_path / f"lost-{victim.pid}"
            command = [sys.executable, "-m", "gossamer", "compare", "quickstart", "--out", str(out)]
            command += ["--set", "rounds=3000", "--engine", there.engine]
            sweep = start(command, stderr=subprocess.PIPE, env=environment)
            wait_for(lambda out=out: list((out / "cells").glob("*/elsewhere.json")))  # type: ignore[misc]
            os.kill(victim.pid, signal.SIGKILL)
            _, said = sweep.communicate(timeout=60)
            assert sweep.returncode == 2, said
            assert (
                said.strip()
                .splitlines()[-1]
                .endswith("what has arrived is kept, and the same command goes on.")
            )
            assert "Traceback" not in said
            if victim is there.workers[0]:
                there.add_worker()


@pytest.mark.slow
def test_another_code_or_an_unknown_plug_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    (tmp_path / "mine.py").write_text("")
    monkeypatch.setenv("GOSSAMER_PLUGINS", str(tmp_path / "mine.py"))
    with started(tmp_path / "cluster", 1) as there:
        with pytest.raises(UserError, match=r"the plug-in mine\.py is not known at the worker tcp://"):
            compare(tmp_path / "out", there.engine)
        monkeypatch.delenv("GOSSAMER_PLUGINS")
        other = tmp_path / "other"
        shutil.copytree(Path(gossamer.__file__).parent, other / "gossamer")
        with (other / "gossamer" / "errors.py").open("a") as file:
            file.write("# changed\n")
        there.add_worker(PYTHONPATH=str(other))
        with distributed.Client(there.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=30)
        with pytest.raises(
            UserError, match=r"the worker tcp://.* has gossamer .*, code .*; install the same"
        ):
            compare(tmp_path / "out", there.engine)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_tls_is_dasks_own_and_strangers_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    with started(tmp_path / "cluster", 1, environment=ours, protocol="tls") as there:
        assert there.address.startswith("tls://")
        for name, value in ours.items():
            monkeypatch.setenv(name, value)
        dask.config.refresh()
        assert compare(tmp_path / "out", there.engine, seeds=1).failed == {}
        monkeypatch.setattr(cluster, "ANSWER_SECONDS", 2.0)
        for name, value in others.items():
            monkeypatch.setenv(name, value)
        dask.config.refresh()
        with pytest.raises(UserError, match="no scheduler answers there within 2 s"):
            compare(tmp_path / "stranger", there.engine)
        with pytest.raises(UserError, match="no scheduler answers there within 2 s"):
            compare(tmp_path / "plain", there.engine.replace("tls://", "tcp://"))
    for name in ours:
        monkeypatch.delenv(name)
    dask.config.refresh()


@pytest.mark.data
def test_a_worker_is_sent_the_set_it_lacks(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", 0) as there:
        there.add_worker(GOSSAMER_CACHE=str(tmp_path / "cache"))
        less = {"rounds": 2, "data.kind": "mnist", "data.train_rows": 500, "nodes": 4}
        for name in ("first", "second"):
            found = gossamer.compare("quickstart", SHORT | less, out=tmp_path / name, engine=there.engine)
            assert found.failed == {}
    assert (tmp_path / "cache" / "mnist.npz").is_file()
    assert isinstance(there, Cluster)
