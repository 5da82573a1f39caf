"""Peak memory of real runs against what was estimated before they began (src/gossamer/training/estimate.py).

    python benchmarks/memory.py                  print; exit 1 if a run took more than its estimate
    python benchmarks/memory.py --write          and rewrite the table in docs/performance.md
    python benchmarks/memory.py --only softmax   runs whose name has that word

Every run is a command of its own; of several ranks the largest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from gossamer.config.checks import effective
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.methods import method_of
from gossamer.models.networks import load_module
from gossamer.results.rundir import RunDirectory
from gossamer.training.data import DataCache, facts_of
from gossamer.training.estimate import Estimate, estimate

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
BASE: dict[str, Any] = {
    "name": "memory", "nodes": 8, "rounds": 3,
    "data": {"kind": "synthetic-classification", "n": 4000, "features": 100, "classes": 10, "test": 1000},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dp-dsgd", "lr": 0.1},
    "privacy": {
        "epsilon": 100.0, "delta": 1e-5, "sampling": {"kind": "poisson", "rate": 0.1},
        "clip": {"kind": "constant", "bound": 1.0},
        "noise": {"multiplier": 3.0, "schedule": {"kind": "constant"}},
    },
}  # fmt: skip
OWN = '''"""A network that is computed record by record: einsum is not known to keep records apart."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(100, 400), nn.Linear(400, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.einsum("ni,ni->ni", x, torch.ones_like(x)))
'''
# A process is said to have taken what its parent held when it was started: so it gets a parent that holds nothing.
SMALL_PARENT = """
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
IN_PYTHON = """
import pathlib, sys, gossamer
from gossamer.models.networks import load_module
config, own, out = sys.argv[1:]
gossamer.run(config, module=load_module(own + ":Net"), out=pathlib.Path(out))
"""


@dataclass(frozen=True)
class Case:
    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    ranks: int = 1
    images: tuple[int, ...] = ()  # of their shape, in a file
    table: int = 0  # rows of a CSV file
    own: bool = False


def lots(rate: float) -> dict[str, Any]:
    return {"privacy.sampling": {"kind": "poisson", "rate": rate}}


MLP = {"model.kind": "mlp"}
DIGRAPH = {"algorithm.kind": "dyn-d2p", "topology": {"kind": "digraph", "p": 0.2}}
FULL = {"privacy.sampling": {"kind": "full"}}
THOUSAND = {"nodes": 1000, "data.n": 20_000}
UNEVEN = {"data.partition": {"kind": "dirichlet", "alpha": 1.0}, "privacy.noise.multiplier": None}
WIDE = {**MLP, "model.hidden": [2000, 2000]}
RESNET = {"model.kind": "resnet18", "rounds": 2, "evaluation.every": 2}
CASES = [
    Case("softmax"),
    Case("softmax, 400,000 records", {"data.n": 400_000}),
    Case("softmax, 10,000 rounds", {"rounds": 10_000, "privacy.noise.multiplier": 30.0}),
    Case("softmax, 1,000 nodes", THOUSAND),
    Case("softmax, 1,000 nodes, complete", {**THOUSAND, "topology.kind": "complete"}),
    Case("softmax, 1,000 nodes, digraph", {**THOUSAND, **DIGRAPH}),
    Case("softmax, 1,000 uneven nodes", {**THOUSAND, **UNEVEN, "privacy.epsilon": 3.0}),
    Case("MLP 512, 512", {**MLP, "model.hidden": [512, 512]}),
    Case("MLP 512, 512, full lots", {**MLP, "model.hidden": [512, 512], "data.n": 40_000, **FULL}),
    Case("MLP 1000, 100 nodes", {**MLP, "model.hidden": [1000], "nodes": 100}),
    Case("MLP 2000, 2000", WIDE),
    Case("MLP 2000, 2000, gradient tracking", {**WIDE, "algorithm.kind": "dp-dsgt"}),
    Case("MLP 2000, 2000, DiNNO", {**WIDE, "algorithm.kind": "dp-dinno"}),
    Case("MLP 2000, 2000, Dyn-D2P", {**WIDE, "algorithm.kind": "dyn-d2p"}),
    Case("MLP 2000, 2000, 2 ranks", WIDE, ranks=2),
    Case("MLP 2000, 2000, 4 ranks", WIDE, ranks=4),
    Case("shallow CNN, lots of 25", {"model.kind": "shallow-cnn"}, images=(1, 28, 28)),
    Case("shallow CNN, full lots", {"model.kind": "shallow-cnn", **FULL}, images=(1, 28, 28)),
    Case(
        "ResNet-9, lots of 5",
        {**RESNET, "model.kind": "resnet9", "nodes": 4, **lots(0.02)},
        images=(3, 32, 32),
    ),
    Case("ResNet-18, width 16, lots of 2", {**RESNET, "model.width": 16, **lots(0.008)}, images=(3, 32, 32)),
    Case("ResNet-18, lots of 2", {**RESNET, "nodes": 4, **lots(0.008)}, images=(3, 32, 32)),
    Case("own module, record by record, lots of 50", own=True),
    Case("own module, record by record, full lots", {**FULL, "data.n": 40_000}, own=True),
    Case("own CSV file of 200,000 rows", table=200_000),
]


def configuration(case: Case, folder: Path) -> dict[str, Any]:
    table = json.loads(json.dumps(BASE))
    rng = np.random.default_rng(0)
    if case.images:
        rows, test = 2000, 2000 if case.images[0] == 1 else 400
        np.savez(
            folder / "images.npz",
            x=rng.random((rows, *case.images), dtype=np.float32),
            y=rng.integers(0, 10, rows),
            x_test=rng.random((test, *case.images), dtype=np.float32),
            y_test=rng.integers(0, 10, test),
        )
        table["data"] = {"kind": "npz", "path": str(folder / "images.npz"), "classes": 10, "records": 250}
    if case.table:
        names = [f"x{k}" for k in range(50)]
        values = rng.random((case.table, len(names)))
        lines = [",".join([*(f"{value:.6f}" for value in row), str(k % 10)]) for k, row in enumerate(values)]
        (folder / "table.csv").write_text("\n".join([",".join([*names, "y"]), *lines, ""]))
        table["data"] = {
            "kind": "csv",
            "path": str(folder / "table.csv"),
            "label": "y",
            "classes": 10,
            "records": case.table // 8,
        }
    return table


def estimated(case: Case, config: RunConfig, own: Path | None) -> Estimate:
    config = effective(config)
    facts = facts_of(config, None, DataCache(), None)
    module = load_module(f"{own}:Net") if own else None
    algorithm = method_of(config).algorithm()
    return estimate(config, algorithm, hosted=-(-config.nodes // case.ranks), facts=facts, module=module)


def measured(case: Case, folder: Path, config: RunConfig, own: Path | None) -> float:
    """Bytes at the peak of the largest process."""
    RunDirectory(folder).write_config(config.model_dump())
    out = str(folder / "run")
    words = ["-m", "gossamer", "run", str(folder / "config.toml"), "--out", out, "--json"]
    if case.ranks > 1:
        words += ["--runtime", "processes", "--set", f"runtime.ranks={case.ranks}"]
    if own:
        words = ["-c", IN_PYTHON, str(folder / "config.toml"), str(own), out]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SMALL_PARENT, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stderr[-2000:]}")
    return 1024.0 * int(done.stderr.split()[-1])


def row(case: Case) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = folder / "own.py" if case.own else None
        if own:
            own.write_text(OWN)
        config = resolve(configuration(case, folder), case.changes)
        found, peak = estimated(case, config, own), measured(case, folder, config, own)
    share = peak / found.total
    return f"| {case.name} | {found.total / 1e6:.0f} | {peak / 1e6:.0f} | {share:.2f} |", share <= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument("--only", default="", help="runs whose name has this word")
    options = parser.parse_args()
    lines, held = ["| run | estimate, MB | peak, MB | share |", "|---|---|---|---|"], True
    for case in CASES:
        if options.only in case.name:
            line, fits = row(case)
            lines.append(line)
            held &= fits
            print(line, flush=True)
    if options.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("<!-- memory -->\n")
        _, _, after = rest.partition("<!-- end of memory -->")
        text = "\n".join(lines)
        DOCUMENT.write_text(f"{before}<!-- memory -->\n{text}\n<!-- end of memory -->{after}", encoding="utf-8")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
