"""Runs of many nodes, from the command to the certificate: seconds, memory, ledger bytes; and reading them again.

    python benchmarks/many_nodes.py                        1,000, 10,000 and 100,000 nodes; print
    python benchmarks/many_nodes.py --write                and rewrite the tables in docs/scaling.md
    python benchmarks/many_nodes.py --nodes 1000 20000     other numbers
    python benchmarks/many_nodes.py --runtime processes    by two processes

Every run and every command about it is a process of its own. Softmax of 54 features and 7 classes, as Covertype has,
10 made-up records a node, a one-peer exponential graph, 50 rounds, 11 evaluations, about 20 checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from gossamer.accounting.ledger import LedgerBook
from gossamer.accounting.releases import Event, Gaussian

DOCUMENT = Path(__file__).parent.parent / "docs" / "scaling.md"
START, END = "<!-- many nodes -->\n", "<!-- end of many nodes -->"
RECORDS, PROCESSES = 10, 10
RUN = """name = "many-nodes"
mode = "sound"
nodes = {nodes}
rounds = {rounds}
[data]
kind = "synthetic-classification"
n = {records}
features = 54
classes = 7
test = 2000
[model]
kind = "softmax"
[topology]
kind = "one-peer-exponential"
[algorithm]
kind = "dyn-d2p"
lr = 2.0
[privacy]
epsilon = 8.0
delta = 1e-4
sampling = {{ kind = "poisson", rate = 0.5 }}
clip = {{ kind = "constant", bound = 1.0 }}
noise = {{ source = "system", schedule = {{ kind = "constant" }} }}
"""
SEEN = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the rounds: where the memory of a run is looked at


def resident(pid: int) -> float:
    """Bytes that a process holds now; 0 once it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE")


class Command:
    """A command that has ended: its time, processor time, largest memory, and its memory at rounds."""

    def __init__(self, *words: str, metrics: Path | None = None):
        begun, before = time.perf_counter(), os.times()
        process = subprocess.Popen(
            [sys.executable, "-m", "gossamer", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.peak, self.at_rounds = 0.0, dict[int, float]()
        watcher = threading.Thread(target=self._watch, args=(process.pid, metrics))
        watcher.start()
        self.out, err = process.communicate()
        watcher.join()
        if process.returncode:
            raise SystemExit(f"gossamer {' '.join(words)}: {err[-2000:]}")
        after = os.times()
        self.seconds = time.perf_counter() - begun
        self.processor = sum(after[2:4]) - sum(before[2:4])

    def _watch(self, pid: int, metrics: Path | None) -> None:
        while (now := resident(pid)) > 0:
            self.peak = max(self.peak, now)
            if metrics is not None and metrics.exists():
                done = metrics.read_text().rpartition("\n")[0].rpartition("\n")[2]
                if done:
                    self.at_rounds.setdefault(json.loads(done)["round"], now)
            time.sleep(0.05)


@dataclass(frozen=True)
class Measured:
    """A row of each table, and what the paper below needs."""

    nodes: int
    row: str
    reading: str
    memory: str
    processor: float
    peak: float


def measured(nodes: int, rounds: int, runtime: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        config, out = Path(folder) / "many.toml", Path(folder) / "run"
        config.write_text(RUN.format(nodes=nodes, rounds=rounds, records=RECORDS * nodes))
        words = ["run", str(config), "--out", str(out), "--json"]
        words += ["--runtime", runtime, "--set", "runtime.ranks=2"] if runtime == "processes" else []
        ran = Command(*words, metrics=out / "metrics.jsonl")
        ledgers = list(out.glob("ledger*.jsonl"))
        size, events = sum(path.stat().st_size for path in ledgers), nodes * rounds
        certificate = (out / "certificate.json").stat().st_size
        checked, reported = Command("plan", "--ledger", str(out)), Command("report", str(out))
        verified = Command("certificate", "verify", str(out))
        page = (out / "report.html").stat().st_size
    row = (
        f"| {nodes:,} | {ran.seconds:.0f} | {ran.processor:.0f} | {ran.peak / 1e6:,.0f} | {len(ledgers):,} | "
        f"{size / events:.3g} | {certificate / 1e6:.2f} | {len(ran.out.splitlines()[-1]) / 1e3:.0f} |"
    )
    reading = (
        f"| {nodes:,} | {checked.processor:.1f} | {verified.processor:.1f} | {reported.processor:.1f} | "
        f"{max(checked.peak, verified.peak, reported.peak) / 1e6:,.0f} | {page / 1e6:.1f} |"
    )
    wanted = {min(ran.at_rounds, key=lambda done: abs(done - share * rounds)) for share in SEEN}
    found = "; ".join(f"{ran.at_rounds[done] / 1e6:,.0f}" for done in sorted(wanted))
    memory = f"- {nodes:,} nodes, MB after rounds {', '.join(map(str, sorted(wanted)))}: {found}"
    return Measured(nodes, row, reading, memory, ran.processor, ran.peak)


def bytes_apart(nodes: int = 20_000, draws: int = 5) -> tuple[float, float]:
    """Bytes an event where every node has a noise of its own: in one ledger, and in one for each."""

    def event(step: int, node: int) -> Event:
        return Event(
            step,
            Gaussian(sigma=1 + node / 7919, sensitivity=1.0, sampling="poisson", rate=0.5, adjacency="add-remove"),
        )

    with tempfile.TemporaryDirectory() as folder:
        with LedgerBook.create(Path(folder) / "ledger.jsonl", {i: {} for i in range(nodes)}, sync=False) as book:
            for step in range(draws):
                book.write([((i,), event(step, i)) for i in range(nodes)])
        together = (Path(folder) / "ledger.jsonl").stat().st_size / (nodes * draws)
        with LedgerBook.create(Path(folder) / "alone" / "ledger.jsonl", {0: {}}, sync=False) as book:
            for step in range(draws):
                book.write([((0,), event(step, 1))])
        alone = (Path(folder) / "alone" / "ledger.jsonl").stat().st_size / draws
    return together, alone


def on_paper(rows: list[Measured], rounds: int) -> str:
    """From the largest run: what a node costs at most, its share of what all share included, and a million of them."""
    large = max(rows, key=lambda one: one.nodes)
    seconds, held, each = large.processor / large.nodes, large.peak / large.nodes, 1_000_000 // PROCESSES
    return textwrap.fill(
        f"A node costs {1e6 * seconds / rounds:.0f} µs of processor time a round and {held / 1e3:.1f} kB of memory "
        f"(of the run with {large.nodes:,}, all of it). On paper, 1,000,000 nodes in {rounds} rounds by {PROCESSES} "
        f"processes of {each:,}: {each * held / 1e9:.1f} GB a process and {seconds * 1_000_000 / 3600:.1f} hours of "
        "processor time in all, beside what messages between processes take.",
        118,
    )


def tables(rows: list[Measured], rounds: int, runtime: str) -> str:
    together, alone = bytes_apart()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return "\n".join(
        [
            f"Measured on {os.cpu_count()} cores, torch {torch.__version__}, runtime {runtime}, {rounds} rounds; load "
            f"after (1, 5, 15 minutes): {load}.",
            "",
            "| nodes | s | processor s | peak MB | ledgers | bytes an event | certificate MB | `--json` kB |",
            "|---|---|---|---|---|---|---|---|",
            *(one.row for one in rows),
            "",
            "| nodes | `plan --ledger`, processor s | `certificate verify` | `report` | peak MB | report.html MB |",
            "|---|---|---|---|---|---|",
            *(one.reading for one in rows),
            "",
            "Resident memory over the rounds:",
            "",
            *(one.memory for one in rows),
            "",
            f"Where every node has a noise of its own, an event takes {together:.0f} bytes, and "
            f"{alone:.0f} in the ledger of a single node.",
            "",
            on_paper(rows, rounds),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--runtime", choices=["simulator", "processes"], default="simulator")
    parser.add_argument("--write", action="store_true", help="rewrite the tables in docs/scaling.md")
    options = parser.parse_args()
    rows = []
    for nodes in options.nodes:
        rows.append(measured(nodes, options.rounds, options.runtime))
        print(rows[-1].row, rows[-1].reading, rows[-1].memory, sep="\n", flush=True)
    text = tables(rows, options.rounds, options.runtime)
    print(f"\n{text}")
    if options.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        DOCUMENT.write_text(f"{before}{START}{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
