"""What a report reads of a run: the files of its directory, finished or still growing."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.files import read_metrics, read_object, read_text
from gossamer.results.headline import headline, judged, known, no_epsilon_covers
from gossamer.results.rundir import read_manifest
from gossamer.results.verify import Verdict, look_at, read_certificate


@dataclass(frozen=True)
class Run:
    label: str
    path: Path
    config: dict[str, Any]
    config_text: str
    manifest: dict[str, Any]
    topology: dict[str, Any]
    metrics: list[dict[str, Any]]
    certificate: dict[str, Any] | None  # None while the run goes on
    verdict: Verdict

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1]

    @property
    def quality(self) -> str | None:
        """Which figure the nodes are judged by; None without a hold-out."""
        name = headline(self.last)
        return name if name is not None and known(name) and f"{name}_mean" in self.last else None

    @property
    def budgets(self) -> list[float]:
        """ε as asked for; more than one where nodes differ."""
        if self.config.get("baseline") == "non-private":
            return []
        asked = self.config.get("privacy", {}).get("epsilon")
        return sorted({*asked} if isinstance(asked, list) else {asked} - {None})

    @property
    def stamp(self) -> str | None:
        noise = str(self.manifest.get("noise", "system"))
        return noise if noise != "system" else None

    @property
    def warnings(self) -> list[str]:
        """Why this run's figures must stay here."""
        reasons = []
        if "hold_out" in self.last:
            reasons.append(f"The hold-out is {self.last['hold_out']}.")
        if (because := no_epsilon_covers(self.last)) is not None and "hold_out" not in self.last:
            reasons.append(f"Accuracies, losses and distances are not private, no ε covers them: {because}.")
        if "gradient_norm" in self.last.get("not_private", {}):
            reasons.append(
                "Gradient norms and clipped shares are not private: they come from training records."
            )
        return reasons


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """All runs, each with a label of its own."""
    runs = [_read(path) for path in paths]
    names = Counter(run.label for run in runs)
    return [
        replace(run, label=f"{run.label} ({run.path.name})") if names[run.label] > 1 else run for run in runs
    ]


def _read(path: Path) -> Run:
    needed = ("config.toml", "manifest.json", "topology.json")
    missing = next((name for name in needed if not os.path.lexists(path / name)), None)
    if missing is not None:
        raise UserError(
            f"{path} is not a run directory: it has no {missing}; give one that `gossamer run` made."
        )
    text = read_text(path / "config.toml")
    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path / 'config.toml'} is damaged and cannot be reported on: {error}.") from None
    manifest, topology = read_manifest(path), read_object(path / "topology.json")
    metrics = [judged(row) for row in read_metrics(path / "metrics.jsonl")]
    certificate = read_certificate(path) if os.path.lexists(path / "certificate.json") else None
    if not metrics:
        raise UserError(f"{path} has no metrics yet; try again after its first evaluation.")
    return Run(manifest["name"], path, config, text, manifest, topology, metrics, certificate, look_at(path))
