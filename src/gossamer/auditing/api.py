"""`gossamer.audit`, for notebooks, scripts and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.auditing.request import AuditRequest, add_to_run
from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.models.networks import load_module
from gossamer.options.sentences import as_path
from gossamer.results.certificate import epsilon_text
from gossamer.results.notebook import Table, fragment, relation, three_epsilons
from gossamer.results.pages import roc_plot
from gossamer.results.rundir import free_path, read_object, read_text
from gossamer.results.signatures import SITE
from gossamer.results.verify import verify_files
from gossamer.results.words import verdict
from gossamer.training.api import configure


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an attack, next to what is claimed and proven."""

    result: dict[str, Any]  # what `--json` prints

    @property
    def violation(self) -> bool:
        """Does the attack contradict a figure?"""
        return bool(self.result["violation"])

    @property
    def epsilon_audited(self) -> float | None:
        """A lower bound; its δ, adjacency, unit and observer are in `result`."""
        epsilon: float | None = self.result["epsilon_audited"]
        return epsilon

    @property
    def epsilon_proven(self) -> float | None:
        epsilon: float | None = self.result["epsilon_proven"]
        return epsilon

    @property
    def epsilon_claimed(self) -> float | None:
        epsilon: float | None = self.result["epsilon_claimed"]
        return epsilon

    @property
    def observer(self) -> str:
        return str(self.result["observer"])

    @property
    def directory(self) -> Path:
        return Path(self.result["audit_dir"])

    def __getitem__(self, key: str) -> Any:
        """A figure of `result` by its name."""
        return self.result[key]

    def __repr__(self) -> str:
        figures = f"{three_epsilons(self.result)} ({relation(self.result)})"
        return f"Audit: {verdict(self.result)} {figures}; in {self.directory}"

    def _repr_html_(self) -> str:
        bounds = self.result["audit"]["bounds"]
        rows = [
            (b["name"], epsilon_text(b["epsilon"]), f"{b['confidence']:.4g}", b["rests_on"]) for b in bounds
        ]
        bounds_table = (
            Table(("what the attack shows", "ε ≥", "confidence", "rests on"), rows) if rows else None
        )
        figures = Table(
            ("proven ε", "claimed ε", "audited ε ≥"),
            [[epsilon_text(e) for e in (self.epsilon_proven, self.epsilon_claimed, self.epsilon_audited)]],
        )
        stamp = [self.result["stamp"].upper()] if self.result["stamp"] else []
        notes = [
            *stamp,
            f"ε at {relation(self.result)}",
            *self.result["audit"]["notes"],
            f"the page: {self.directory / 'report.html'}",
        ]
        curve = roc_plot(self.result) if rows else None
        return fragment(verdict(self.result), figures, bounds_table, curve, notes=notes)


def audit(
    recipe: str | Path | Mapping[str, Any] | RunConfig,
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | str | None = None,
    loss: Any = None,
    algorithm: Any = None,
    clip: Any = None,
    noise: Any = None,
    topology: Any = None,
    observer: str = "all",
    canary: str | None = None,
    canary_records: int = 1,
    runs: int | None = None,
    confidence: float = 0.999,
    out: Path | str | None = None,
    engine: str = "local",
    data_dir: Path | str | None = None,
    force: bool = False,
    on_start: Callable[[RunConfig], None] = lambda config: None,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
) -> Audit:
    """Attack what the run would release, and report what an adversary can show.

    The directory of a finished run is audited as it was run, and its certificate gets the audited ε. `module`, or the
    "file.py:name" of one, replaces the configuration's model by your own; then a record is also searched for that moves
    a sum by more than its clip (`canary="sensitivity"`: only that, and thoroughly). `loss`, `algorithm`, `clip`,
    `noise` and `topology` are as in `gossamer.run`. `canary_records`: every canary is a person with that many records,
    in or out as a whole; in a run that protects records nothing is promised to a person. `engine`: where a retraining
    audit trains, "local" or "dask:ADDRESS". `on_start` and `on_batch` report progress.
    """
    finished = Path(recipe) if isinstance(recipe, str | Path) and Path(recipe).is_dir() else None
    objects = {"loss": loss, "algorithm": algorithm, "clip": clip, "noise": noise, "topology": topology}
    config = _as_it_was(finished, changes) if finished is not None else configure(recipe, changes, **objects)
    own = load_module(module, seed=config.seed) if isinstance(module, str) else module
    on_start(config)
    request = AuditRequest(
        config=config,
        module=own,
        observer=str(observer),
        canary=canary,
        canary_records=canary_records,
        runs=runs,
        confidence=confidence,
        engine=engine,
        data_dir=as_path("data_dir", data_dir),
        force=force,
        on_batch=on_batch,
    )
    result = request.run(as_path("out", out) or free_path(f"audit-{config.name}"))
    if finished is not None and (canary_records == 1 or config.privacy.unit != "record"):
        add_to_run(finished, result)  # the certificate is about its own unit only
    return Audit(result)


def _as_it_was(run: Path, changes: Mapping[str, Any] | None) -> RunConfig:
    if not os.path.lexists(run / "certificate.json"):
        raise UserError(f"{run} has no certificate.json; give a finished run, a recipe or a TOML file.")
    if changes:
        raise UserError("--set would audit something else than this run; leave it out, or name its recipe.")
    if SITE in read_object(run / "certificate.json"):
        raise UserError(
            f"{run} is one site's part of a study, whose other records are elsewhere, and its certificate is signed; "
            "audit the study's recipe instead, on records that need no protection."
        )
    verify_files(run)  # damage shows before the attack, which takes long
    read_text(run / "config.toml")
    return stored(run / "config.toml")
