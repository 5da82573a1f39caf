"""`gossamer.load`: a run directory as an object. Nothing that it names is executed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.accounting.recompute import NodeProof, recompute
from gossamer.config.checks import effective
from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.options.sentences import as_path
from gossamer.results.rundir import read_manifest, read_metrics, read_object
from gossamer.results.signatures import read_certificate
from gossamer.results.trained import Models, UsesModels
from gossamer.results.verify import Verdict, look_at
from gossamer.training.run import result_of


class LoadedRun(UsesModels):
    """A run directory, each part read when it is first asked for; of an unfinished run, what there is."""

    def __init__(self, directory: Path, *, module: nn.Module | None = None, data_dir: Path | None = None):
        if not (directory / "manifest.json").exists():
            raise UserError(f"{directory} is no run directory: it has no manifest.json; name one that `run` made.")
        self.directory, self._module, self._data_dir = directory, module, data_dir
        self.manifest = read_manifest(directory)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"<gossamer run {self.manifest['name']!r} in {self.directory}, {state}>"

    @property
    def finished(self) -> bool:
        return (self.directory / "certificate.json").exists()

    @cached_property
    def config(self) -> RunConfig:
        return stored(self.directory / "config.toml")

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """The run's privacy statement; `verdict` says whether its ledgers agree."""
        if not self.finished:
            raise UserError(
                f"{self.directory} has no certificate: it has not ended; resume it with "
                f"`gossamer run --resume {self.directory}`."
            )
        return read_certificate(self.directory / "certificate.json")

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The evaluations so far, one row each; figures under `not_private` are covered by no ε."""
        return read_metrics(self.directory / "metrics.jsonl")

    @cached_property
    def result(self) -> dict[str, Any]:
        """The result that `run --json` printed."""
        last = self.metrics[-1] if self.metrics else {}
        seconds = float(last.get("seconds", 0.0))
        return result_of(effective(self.config), self.certificate, last, seconds=seconds, run_dir=str(self.directory))

    @property
    def observers(self) -> list[dict[str, Any]]:
        """An entry per observer whose ε the certificate states."""
        by_observer = self.certificate.get("epsilon_by_observer")
        common = {key: self.certificate[key] for key in ("delta", "adjacency", "unit")}
        alone = {
            "observer": self.certificate["observer"],
            "epsilon": self.certificate["epsilon_proven"],
            **common,
        }
        return [alone] if not by_observer else list(by_observer)

    @cached_property
    def topology(self) -> dict[str, Any]:
        return read_object(self.directory / "topology.json")

    @cached_property
    def proofs(self) -> Sequence[NodeProof]:
        """Proven ε of every node whose ledger lies here, recomputed from it."""
        return recompute(self.directory)

    @cached_property
    def verdict(self) -> Verdict:
        """The comparison of the certificate with the ledgers, and of the files with those that were signed."""
        return look_at(self.directory)

    @cached_property
    def models(self) -> Models:  # type: ignore[override]
        return Models.stored(self.directory, self._module, self._data_dir)


def load(directory: Path | str, *, module: nn.Module | None = None, data_dir: Path | str | None = None) -> LoadedRun:
    """A run directory. `module`: your own network, where the run trained one; `data_dir`: where public sets lie."""
    path = as_path("directory", directory)
    if path is None:
        raise UserError("directory = None is no run directory; name one that `run` made.")
    return LoadedRun(path, module=module, data_dir=as_path("data_dir", data_dir))
