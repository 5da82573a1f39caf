"""`gossamer peer demo`: what several organisations do in a week, on one machine in a minute.

Real keys, certificates, files and processes over loopback; then the certificates of all sites are verified as a set,
and the same recipe is simulated in this process.
"""

from __future__ import annotations

import csv
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.accounting.budget import STATE
from gossamer.consortium.certificates import verify_set
from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.packing import pack
from gossamer.consortium.site import accept, join
from gossamer.data.source import datasets
from gossamer.errors import UserError
from gossamer.results.certificate import UNIT, epsilon_text
from gossamer.results.rundir import read_metrics, read_object
from gossamer.runtime.launch import environment

NAMES = (
    "alder", "birch", "cedar", "elm", "fir", "hazel", "juniper", "larch", "maple", "oak", "pine", "rowan", "spruce",
    "thuja", "willow", "yew",
)  # fmt: skip
Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """By site: (accuracy of its model, its proven ε); and the same of the simulator."""

    sites: Mapping[str, tuple[float, float | None]]
    simulated: tuple[Sequence[float], float | None]


def demo(folder: Path, *, sites: int, rounds: int, limit: float, say: Say, seed: int | None = None) -> Result:
    """All of it in `folder`, which is empty. With a `seed` the simulator draws the same noise: no privacy."""
    with _own_register(folder):
        return _demo(folder, sites, rounds, limit, say, seed)


@contextmanager
def _own_register(folder: Path) -> Iterator[None]:
    """Demos use the same public digits again and again: what one spends is nothing to the next, nor to its user."""
    before = os.environ.get(STATE)
    os.environ[STATE] = str(folder / "state")
    try:
        yield
    finally:
        os.environ.pop(STATE)
        if before is not None:
            os.environ[STATE] = before


def _demo(folder: Path, sites: int, rounds: int, limit: float, say: Say, seed: int | None) -> Result:
    began = time.monotonic()
    names = NAMES[:sites]
    changes = {} if seed is None else {"seed": seed, "privacy.noise.source": "seeded"}
    study = prepare(folder, names, rounds, changes=changes, for_science=seed is not None)
    say(
        f"prepared: an authority, {sites} sites with keys, certificates and files of their own, and one signed study"
    )
    say(f"started: {sites} processes, {rounds} rounds over mutual TLS on loopback")
    _run_all(folder, study, names, began + limit)
    say("")
    lines = verify_set([folder / name / "part" / "run" for name in names], study)
    for line in lines:
        say(line)
    simulated = _simulated(folder, names, rounds, changes)
    result = Result({name: _figures(folder, name, k) for k, name in enumerate(names)}, simulated)
    _compare(result, say, drawn_alike=seed is not None)
    return result


def recipe(sites: int, rounds: int) -> dict[str, Any]:
    """The quickstart's, for so many sites with files of their own."""
    return {
        "name": "demo",
        "nodes": sites,
        "rounds": rounds,
        "data": {"kind": "csv", "label": "digit", "classes": 10},
        "model": {"kind": "softmax"},
        "topology": {"kind": "one-peer-exponential"},
        "algorithm": {"kind": "dyn-d2p", "lr": 2.0},
        "privacy": {
            "epsilon": 8.0,
            "delta": 1e-4,
            "adjacency": "add-remove",
            "sampling": {"kind": "poisson", "rate": 0.25},
            "clip": {"kind": "decaying", "start": 1.0, "ratio": 2.0},
            "noise": {"source": "system", "schedule": {"kind": "growing-budget", "ratio": 2.0}},
        },
    }


def prepare(
    folder: Path,
    names: Sequence[str],
    rounds: int,
    *,
    deadline: float = 10.0,
    tick: float = 0.02,
    changes: Mapping[str, Any] | None = None,
    for_science: bool = False,
    address_of: Callable[[str, int], str] = lambda name, port: f"127.0.0.1:{port}",
) -> Path:
    """An authority, its sites with their records, and a study, which is returned.

    `address_of`: where others reach a site that listens at this port, if a proxy is between.
    """
    counts = _digits(folder, names)
    authority = Coordinator.init("demo", folder / "authority")
    ports = _free_ports(len(names))
    for name, port, count in zip(names, ports, counts, strict=True):
        address = address_of(name, port)
        request, _ = join(
            authority.invite(name), listen=address, records=count, folder=folder / name,
            data=str(folder / f"{name}.csv"), cap=8.5,
        )  # fmt: skip
        authority.approve(name, request.read_bytes(), str(request))
        here = f"{address.rpartition(':')[0]}:{port}"
        site = folder / name / "site.toml"
        site.write_text(site.read_text().replace(f'listen = "{address}"', f'listen = "{here}"'))
    for name in names:
        site = folder / name / "site.toml"
        roster = authority.roster_file
        accept(site, roster.read_bytes(), str(roster), lambda changes: True)
        text = site.read_text().replace('# test = "test.csv"', 'test = "../test.csv"')
        text = text.replace("cap = 8.5", "public = true  # digits\ncap = 8.5") if for_science else text
        site.write_text(text)
    where = {"data.path": str(folder / "records-{node}.csv"), "data.test": str(folder / "test.csv")}
    _, study, _ = pack(
        authority, recipe(len(names), rounds), {**where, **(changes or {})},
        deadline=deadline, tick=tick, for_science=for_science,
    )  # fmt: skip
    return study


def _digits(folder: Path, names: Sequence[str]) -> list[int]:
    """The bundled digits as a file a site, and one of public test rows; how many records each has."""
    digits = datasets.kinds["digits"]().load(None, 0)
    pieces = np.array_split(np.arange(len(digits.x_train)), len(names))
    for k, (name, piece) in enumerate(zip(names, pieces, strict=True)):
        _write(folder / f"{name}.csv", digits.x_train[piece], digits.y_train[piece])
        (folder / f"records-{k}.csv").symlink_to(f"{name}.csv")  # what a simulation in one process reads
    _write(folder / "test.csv", digits.x_test, digits.y_test)
    return [len(piece) for piece in pieces]


def _write(path: Path, x: Any, y: Any) -> None:
    flat = np.asarray(x).reshape(len(x), -1)
    with path.open("w", newline="") as opened:
        lines = csv.writer(opened)
        lines.writerow([*(f"p{j:02d}" for j in range(flat.shape[1])), "digit"])
        for row, label in zip(flat.tolist(), np.asarray(y).tolist(), strict=True):
            lines.writerow([*(f"{value:g}" for value in row), label])


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def start(folder: Path, study: Path, name: str, wait: float) -> subprocess.Popen[bytes]:
    """The process of one site; what it says goes to its own folder."""
    with (folder / name / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [
                sys.executable, "-P", "-m", "gossamer", "peer", "run", str(study), "--site", str(folder / name),
                "--out", str(folder / name / "part"), "--wait", f"{wait:g}",
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(1),
        )  # fmt: skip


def _run_all(folder: Path, study: Path, names: Sequence[str], end: float) -> None:
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            children[name] = start(folder, study, name, wait=max(10.0, end - time.monotonic()))
        while any(child.poll() is None for child in children.values()):
            failed = next((name for name, child in children.items() if child.poll() not in (None, 0)), None)
            if failed is not None:
                raise UserError(f"{failed} stopped: {_last_line(folder / failed / 'output.txt')}")
            if time.monotonic() > end:
                raise UserError("the demo took longer than --limit; give it more seconds, or fewer rounds.")
            time.sleep(0.1)
        for name, child in children.items():
            if child.returncode:
                raise UserError(f"{name} stopped: {_last_line(folder / name / 'output.txt')}")
    finally:
        stop(children.values())


def stop(children: Any) -> None:
    """End those that are left, and wait until they have."""
    left = [child for child in children if child.poll() is None]
    for child in left:
        child.terminate()
    for child in left:
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _last_line(output: Path) -> str:
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return re.sub("^gossamer: ", "", lines[-1]) if lines else "it printed nothing."


def _figures(folder: Path, name: str, node: int) -> tuple[float, float | None]:
    run = folder / name / "part" / "run"
    rows = read_metrics(run / "metrics.jsonl")
    certificate = read_object(run / "certificate.json")
    return rows[-1]["accuracy_mean"], certificate["epsilon_by_node"][node]["proven"]


def _simulated(
    folder: Path, names: Sequence[str], rounds: int, changes: Mapping[str, Any]
) -> tuple[Sequence[float], float | None]:
    """The same recipe on the same files, all nodes in this process; its own accounts, so that no cap is touched."""
    from gossamer.config.layers import resolve
    from gossamer.training.assemble import assemble
    from gossamer.training.plan import Plan
    from gossamer.training.run import execute

    tables = recipe(len(names), rounds)
    (folder / "simulated").mkdir()
    here = {
        "data.path": str(folder / "records-{node}.csv"),
        "data.test": str(folder / "test.csv"),
        "data.records": [len((folder / f"{name}.csv").read_text().splitlines()) - 1 for name in names],
        "data.budget": str(folder / "simulated" / "budget-{node}.jsonl"),
        **changes,
    }
    o = Plan.of(resolve(tables, here))
    done = execute(assemble(o), out=folder / "simulated" / "run")
    return done.result["accuracy_by_node"], done.certificate["epsilon_proven"]


def _compare(result: Result, say: Say, *, drawn_alike: bool) -> None:
    accuracies, epsilon = result.simulated
    say("")
    say("site          accuracy  proven ε   simulator: accuracy  proven ε")
    for (name, (accuracy, proven)), other in zip(result.sites.items(), accuracies, strict=True):
        say(
            f"{name:12}  {accuracy:8.3f}  {epsilon_text(proven):>8}   {other:19.3f}  {epsilon_text(epsilon):>8}"
        )
    noise = "seeded noise, the same in both: no privacy" if drawn_alike else "noise differs from run to run"
    say(f"(δ = 0.0001, add-remove, unit: {UNIT}; observer: who sees all messages; {noise})")
