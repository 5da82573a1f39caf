"""`gossamer peer demo`: what several organisations do in a week, on one machine in a minute.

Real keys, certificates, files and processes over loopback; then the certificates of all sites are verified as a set,
and the same recipe is simulated in this process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.accounting.budget import STATE
from gossamer.config.layers import named, resolve
from gossamer.consortium.certificates import verify_set
from gossamer.consortium.folders import Coordinator, accept, join
from gossamer.consortium.study import pack
from gossamer.data.source import datasets
from gossamer.errors import UserError
from gossamer.results.certificate import UNIT, epsilon_text
from gossamer.results.rundir import read_metrics, read_object
from gossamer.results.terminal import Table
from gossamer.runtime.launch import end as end_processes
from gossamer.runtime.launch import environment
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

NAMES = (
    "alder", "birch", "cedar", "elm", "fir", "hazel", "juniper", "larch", "maple", "oak", "pine", "rowan", "spruce",
    "thuja", "willow", "yew",
)  # fmt: skip
Say = Callable[[str], None]


Simulated = tuple[Sequence[float], float | None]  # the accuracy of every node's model, the worst proven ε
Result = tuple[dict[str, tuple[float, float | None]], Simulated]  # the same by site, and simulated


def demo(folder: Path, *, sites: int, rounds: int, limit: float, say: Say, seed: int | None = None) -> Result:
    """Run everything in `folder`, which is empty. With a `seed` the simulator draws the same noise: no privacy."""
    end, names, before = time.monotonic() + limit, NAMES[:sites], os.environ.get(STATE)
    changes = {} if seed is None else {"seed": seed, "privacy.noise.source": "seeded"}
    # Demos use the same public digits again and again: what one spends is nothing to the next, nor to its user.
    os.environ[STATE] = str(folder / "state")
    try:
        study = prepare(folder, names, rounds, changes=changes, for_science=seed is not None)
        say(f"prepared: an authority, {sites} sites with keys and files of their own, and one signed study")
        say(f"started: {sites} processes, {rounds} rounds over mutual TLS on loopback")
        _run_all(folder, study, names, end)
        runs = [folder / name / "part" / "run" for name in names]
        for line in ("", *verify_set(runs, study)):
            say(line)
        figures = {name: _figures(runs[node], node) for node, name in enumerate(names)}
        simulated = _simulate(folder, names, rounds, changes)
    finally:
        os.environ.pop(STATE)
        if before is not None:
            os.environ[STATE] = before
    accuracies, epsilon = simulated
    rows = [
        (name, f"{accuracy:.3f}", epsilon_text(proven), f"{other:.3f}", epsilon_text(epsilon))
        for (name, (accuracy, proven)), other in zip(figures.items(), accuracies, strict=True)
    ]
    noise = "noise differs from run to run" if seed is None else "seeded noise, the same in both: no privacy"
    terms = f"(δ = 0.0001, add-remove, unit: {UNIT}; observer: who sees all messages; {noise})"
    say(f"\n{Table(('site', 'accuracy', 'proven ε', 'simulator: accuracy', 'proven ε'), rows, [terms])}")
    return figures, simulated


def recipe(sites: int, rounds: int) -> dict[str, Any]:
    """Return the quickstart's recipe, for so many sites with files of their own."""
    data = {"kind": "csv", "label": "digit", "classes": 10}
    return {**named("quickstart")[1], "name": "demo", "nodes": sites, "rounds": rounds, "data": data}


def _places(folder: Path) -> dict[str, str]:
    return {"data.path": str(folder / "records-{node}.csv"), "data.test": str(folder / "test.csv")}


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
    """Make an authority, its sites with their records, and a study; return the study's file.

    `address_of`: where others reach a site that listens at this port, if a proxy is between.
    """
    counts = _write_digits(folder, names)
    authority = Coordinator.init("demo", folder / "authority")
    for name, port, count in zip(names, _free_ports(len(names)), counts, strict=True):
        address, data = address_of(name, port), str(folder / f"{name}.csv")
        invite = authority.invite(name)
        request, _ = join(invite, listen=address, records=count, folder=folder / name, data=data, cap=8.5)
        authority.approve(name, request.read_bytes(), str(request))
        settings = folder / name / "site.toml"
        own = f'listen = "{address.rpartition(":")[0]}:{port}"\ntest = "../test.csv"\n'
        own += "public = true  # digits\n" * for_science
        settings.write_text(settings.read_text().replace(f'listen = "{address}"', own))
    roster = authority.roster_file
    for name in names:
        accept(folder / name / "site.toml", roster.read_bytes(), str(roster), lambda changes: True)
    terms: dict[str, Any] = {"deadline": deadline, "tick": tick, "for_science": for_science}
    return pack(authority, recipe(len(names), rounds), {**_places(folder), **(changes or {})}, **terms)[1]


def _write_digits(folder: Path, names: Sequence[str]) -> list[int]:
    """Write the bundled digits as a file a site, and one of public test rows; return how many records each has."""
    digits = datasets.kinds["digits"]().load(None, 0)
    pieces = np.array_split(np.arange(len(digits.x_train)), len(names))
    for k, (name, piece) in enumerate(zip(names, pieces, strict=True)):
        _write(folder / f"{name}.csv", digits.x_train[piece], digits.y_train[piece])
        (folder / f"records-{k}.csv").symlink_to(f"{name}.csv")  # what a simulation in one process reads
    _write(folder / "test.csv", digits.x_test, digits.y_test)
    return [len(piece) for piece in pieces]


def _write(path: Path, x: Any, y: Any) -> None:
    table = np.column_stack([np.asarray(x).reshape(len(x), -1), y])
    names = [*(f"p{j:02d}" for j in range(table.shape[1] - 1)), "digit"]
    np.savetxt(path, table, fmt="%g", delimiter=",", header=",".join(names), comments="")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def start(folder: Path, study: Path, name: str, wait: float) -> subprocess.Popen[bytes]:
    """Start the process of one site; what it prints goes to its own folder."""
    place = folder / name
    words = [str(study), "--site", str(place), "--out", str(place / "part"), "--wait", f"{wait:g}"]
    with (place / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gossamer", "peer", "run", *words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(1),
        )  # fmt: skip


def _run_all(folder: Path, study: Path, names: Sequence[str], end: float) -> None:
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            children[name] = start(folder, study, name, wait=max(10.0, end - time.monotonic()))
        running = True
        while running:
            running = None in [child.poll() for child in children.values()]
            for name, child in children.items():
                if child.returncode:
                    raise UserError(f"{name} stopped: {_last_line(folder / name / 'output.txt')}")
            if running and time.monotonic() > end:
                raise UserError("the demo took longer than --limit; give it more seconds, or fewer rounds.")
            time.sleep(0.1)
    finally:
        end_processes(list(children.values()))


def _last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("gossamer: ") if lines else "it printed nothing."


def _figures(run: Path, node: int) -> tuple[float, float | None]:
    certificate = read_object(run / "certificate.json")
    accuracy = read_metrics(run / "metrics.jsonl")[-1]["accuracy_mean"]
    return accuracy, certificate["epsilon_by_node"][node]["proven"]


def _simulate(folder: Path, names: Sequence[str], rounds: int, changes: Mapping[str, Any]) -> Simulated:
    """Run the same recipe on the same files in this process, behind the sites' own part: no cap is touched."""
    out = folder / "simulated"
    out.mkdir()
    counts = [len((folder / f"{name}.csv").read_text().splitlines()) - 1 for name in names]
    own = {"data.records": counts}
    config = resolve(recipe(len(names), rounds), {**_places(folder), **own, **changes})
    done = execute(assemble(Plan.of(config)), out=out / "run")
    return done.result["accuracy_by_node"], done.certificate["epsilon_proven"]
