"""Five rounds of every recipe, baseline and method with seeded noise: what they gave when they were recorded.

`python -m tests.support.recorded tests/conformance/recorded.json [--data-dir DIR]` records anew: only where a change
of the numbers is meant. A case holds its figures and projections of the models. Processors add in different orders, so
numbers are compared up to what that makes of them in five rounds, and bytes are not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gossamer
from gossamer.errors import UserError
from gossamer.results.headline import judged

BASELINES = ("none", "non-private", "no-communication", "central")
OFFLINE = (
    "quickstart", "dyn-d2p/dirac", "dp-dkm/lasso", "dp-dkm/logistic", "dp-dkm/truncated",
)  # fmt: skip
ON_DATA = (
    "adad2p/cifar10", "adad2p/mnist", "dp-consensus/membership", "dp-consensus/mnist", "dp-dkm/covertype",
    "dyn-d2p/cifar10", "dyn-d2p/fashion-mnist", "frontier/cifar10-pixels", "frontier/covertype-linear",
    "frontier/covertype", "frontier/fashion-mnist-pixels", "frontier/mnist-pca50-linear", "frontier/mnist-pca50",
    "frontier/mnist-pixels", "frontier/mnist-no-public", "without-replacement/covertype", "without-replacement/mnist",
)  # fmt: skip
METHODS = (
    "sgp", "adad2p", "constd2p", "clipd2p", "const-d2p", "dyn-c-d2p", "dyn-mu-d2p", "dyn-d2p", "general-d2p",
    "full-lot", "dp-dsgd", "dp-dsgt", "dp-dinno", "without-replacement", "with-replacement", "dp-dkm",
)  # fmt: skip
_OWN: dict[str, dict[str, Any]] = {
    "without-replacement": {
        "model.kind": "one-vs-all",
        "topology.kind": "complete",
        "algorithm.lr": 0.1,
        "privacy.sampling": {"kind": "one-pass", "lot": 30},
        "privacy.adjacency": "replace-one",
        "privacy.epsilon": 0.8,
    },
    "with-replacement": {
        "model.kind": "one-vs-all",
        "topology.kind": "complete",
        "algorithm.lr": 0.1,
        "privacy.adjacency": "replace-one",
        "privacy.epsilon": 0.8,
    },
    "dp-dkm": {
        "topology.kind": "ring",
        "algorithm.lr": 0.5,
        "privacy.sampling": {"kind": "full"},
        "privacy.epsilon": 0.8,
    },
    "general-d2p": {"privacy.sampling": {"kind": "poisson", "lot": 150}, "privacy.epsilon": 0.8},
}
FIGURES = (
    "epsilon_claimed", "epsilon_proven", "epsilon_by_node", "delta", "adjacency", "unit", "observer", "stamp",
    "claim_flags", "not_proven_because", "nodes", "rounds", "mode", "baseline", "bytes_sent", "consensus_distance",
    "accuracy_mean", "accuracy_min", "rmse_mean", "truth_rmse_mean", "loss_mean", "hold_out_rows",
)  # fmt: skip
TRAINED = ("consensus_distance", "rmse_mean", "truth_rmse_mean", "loss_mean")
STATED = ("draws", "public_constants", "notes", "not_covered", "method", "weighting", "noise_source")


@dataclass(frozen=True)
class Case:
    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join([self.recipe, *(f"{key}={value}" for key, value in self.changes.items())])


def offline_cases() -> list[Case]:
    """Those that need no data but what is installed."""
    cases = [Case(recipe, {"baseline": baseline}) for recipe in OFFLINE for baseline in BASELINES]
    cases += [Case(recipe, {"mode": "paper"}) for recipe in OFFLINE]
    for method in METHODS:
        graph = {"topology.kind": "ring"} if method.startswith("dp-d") else {}
        for mode in ("sound", "paper"):
            own = {"algorithm.kind": method, "mode": mode, **graph, **_OWN.get(method, {})}
            cases.append(Case("quickstart", own))
    for controller in ("global", "local", "pass-end", "probability", "loss-threshold"):
        own = {**_OWN["without-replacement"], "algorithm.controller": controller}
        cases.append(Case("quickstart", {"algorithm.kind": "without-replacement", **own}))
    pieces = {
        "algorithm.momentum": 0.5,
        "algorithm.mixes": 2,
        "algorithm.tail_average": 0.5,
        "algorithm.final_gossip": 3,
    }
    cases += [
        Case("quickstart", pieces),
        Case("quickstart", {"privacy.centre": 0.1, "privacy.clip": {"kind": "constant", "bound": 1.0}}),
        Case("quickstart", {"privacy.clip": {"kind": "constant", "bound": 1.0, "of": "lot"}}),
        Case(
            "quickstart",
            {"privacy.sampling": {"kind": "fixed-size", "lot": 16}, "privacy.adjacency": "replace-one"},
        ),
        Case("quickstart", {"privacy.sampling": {"kind": "one-pass", "lot": 60}}),
        Case("quickstart", {"privacy.noise.family": {"kind": "laplace"}, "privacy.epsilon": 1000.0}),
        Case("quickstart", {"privacy.noise.multiplier": 3.0, "privacy.epsilon": 2.0}),
        Case("quickstart", {"topology.dropout": 0.2, "topology.kind": "ring"}),
        Case("quickstart", {"weighting": "size", "data.partition": {"kind": "dirichlet", "alpha": 1.0}}),
    ]
    return cases


def data_cases() -> list[Case]:
    """The others; residual networks are left out, since judging twenty of them takes minutes a case."""
    cases = []
    for recipe in ON_DATA:
        light = {"model.kind": "shallow-cnn"} if recipe.endswith("/cifar10") else {}
        cases += [Case(recipe, {"baseline": baseline, **light}) for baseline in BASELINES]
        cases.append(Case(recipe, {"mode": "paper", **light}))
    return cases


def observed(case: Case, data_dir: Path | None = None) -> dict[str, Any]:
    """What five rounds of it give, or that it is refused."""
    changes = {"rounds": 5, "privacy.noise.source": "seeded", "evaluation.rows": 200, **case.changes}
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = gossamer.run(case.recipe, changes, out=Path(folder) / "run", data_dir=data_dir)
        except UserError as error:
            return {"refused": True, "because": str(error)}
    points = outcome.points.double().cpu().numpy().ravel()
    shown = judged(outcome.result)
    figures = {key: shown[key] for key in FIGURES if key in shown}
    stated = {key: outcome.certificate[key] for key in STATED}
    return {
        "refused": False,
        "figures": _short(figures),
        "stated": _short(stated),
        "projections": _projections(points),
    }


def _short(figures: dict[str, Any]) -> dict[str, Any]:
    """As JSON reads it back; equal neighbours in a list are counted."""
    return {key: _counted(value) for key, value in json.loads(json.dumps(figures)).items()}


def _counted(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [[len(list(equal)), item] for item, equal in itertools.groupby(value)]


def _projections(points: np.ndarray) -> list[float]:
    """A few sums that a changed model would change, but a last digit would not."""
    places = np.arange(len(points))
    waves = [np.cos((k + 1) * 0.7 * places + k) for k in range(6)]
    return [float(np.linalg.norm(points)), *(float(points @ wave) for wave in waves)]


# An addition in float32 is off by 6e-8 of its size. A thousand of them a round, for five rounds: 3e-4 at most, and in the
# cases here 4e-5 was seen between two instruction sets. What is counted may differ by one row of those judged.
ROUNDED, ONE_ROW = 1e-3, 0.0051
ACCOUNTED = 1e-6  # in double precision, from the configuration alone


def difference(found: dict[str, Any], recorded: dict[str, Any]) -> str | None:
    """The first thing in which a case differs from its record by more than the order of additions explains."""
    if found["refused"] != recorded["refused"]:
        return "it is refused now" if found["refused"] else "it was refused, and is not any more"
    if found["refused"]:
        return None
    for part in ("figures", "stated"):
        for key in {**recorded[part], **found[part]}:
            old, new = (_one_by_one(side[part].get(key)) for side in (recorded, found))
            share, least = (ROUNDED, 1e-3) if key in TRAINED else (ACCOUNTED, 1e-3)
            if key.startswith("accuracy"):
                share, least = ONE_ROW, 1.0
            if not _close(new, old, share, least):
                return f"{key} was {old!r} and is {new!r}"
    if not np.allclose(found["projections"], recorded["projections"], rtol=ROUNDED, atol=ROUNDED):
        return "the models differ"
    return None


def _one_by_one(value: Any) -> Any:
    """[[2, item], …] → [item, item, …]: on another machine a last digit may part what was equal here."""
    counted = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int for pair in value
    )
    return [item for count, item in value for _ in range(count)] if counted else value


def _close(new: Any, old: Any, share: float, least: float) -> bool:
    """Numbers up to a share of their size, or of `least`; everything else exactly."""
    if isinstance(old, float) and isinstance(new, float):
        return abs(new - old) <= share * max(abs(old), least)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(_close(a, b, share, least) for a, b in zip(new, old, strict=True))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_close(new[key], old[key], share, least) for key in old)
    return bool(new == old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(asked.file.read_text()) if asked.file.is_file() else {"cases": {}}
    for case in [*offline_cases(), *(data_cases() if asked.data_dir else [])]:
        if asked.only in case.name:
            known["cases"][case.name] = observed(case, asked.data_dir)
            print(
                case.name,
                known["cases"][case.name].get("because", ""),
                flush=True,
            )
            asked.file.write_text(_text(known), encoding="utf-8")


def _text(known: dict[str, Any]) -> str:
    """A line per case."""
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in known["cases"].items()]
    return '{"cases": {\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    main()
