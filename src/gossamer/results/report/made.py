"""What `gossamer.report` made, as a person or a notebook wants to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gossamer.results.certificate import epsilon_text, of_its_own
from gossamer.results.headline import in_per_cent, unit
from gossamer.results.line_plot import Line, line_plot
from gossamer.results.notebook import columns, picture, quality, relation, shown, table
from gossamer.results.report.page import write_report
from gossamer.results.report.runs import Run, read_runs


class HasDirectory(Protocol):
    """An outcome of `gossamer.run`, for one."""

    @property
    def directory(self) -> Path: ...


@dataclass(frozen=True, repr=False)
class Report:
    """Where the page is, the runs it shows, and a sentence about each of them that does not verify."""

    path: Path
    runs: tuple[Run, ...]
    unverified: tuple[str, ...]

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (run.label, str(run.config["algorithm"]["kind"]), quality(run.last) or "—", *_epsilons(run))
            for run in self.runs
        ]

    def _notes(self) -> list[str]:
        meant = {relation(run.certificate) for run in self.runs if run.certificate}
        stamps = {run.stamp.upper() for run in self.runs if run.stamp}
        return [
            *(f"ε at {what}" for what in sorted(meant)),
            *sorted(stamps),
            *self.unverified,
            f"the page: {self.path}",
        ]

    def __repr__(self) -> str:
        return "\n".join([columns(_HEADER, self._rows()), *self._notes()])

    def _repr_html_(self) -> str:
        name = next((run.quality for run in self.runs if run.quality), None)
        key, scale = f"{name}_mean", 100.0 if name and in_per_cent(name) else 1.0
        lines = [
            Line(run.label, tuple((row["round"], scale * row[key]) for row in run.metrics if key in row))
            for run in self.runs
        ]
        plot = picture(line_plot(lines, "round", unit(name))) if name else ""
        title = f"Report of {len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        return shown(title, table(_HEADER, self._rows()), plot, notes=self._notes())


_HEADER = ("run", "method", "judged by", "proven ε", "claimed ε", "audited ε ≥")


def _epsilons(run: Run) -> tuple[str, str, str]:
    if run.certificate is None:
        return "still running", "—", "—"
    stated = of_its_own(run.certificate)
    proven, claimed, audited = (stated[f"epsilon_{name}"] for name in ("proven", "claimed", "audited"))
    return epsilon_text(proven), epsilon_text(claimed), epsilon_text(audited)


def report(
    runs: Path | str | HasDirectory | Sequence[Path | str | HasDirectory], *, out: Path | str | None = None
) -> Report:
    """Runs side by side as one HTML file; each is a run's directory or its outcome.

    `gossamer.report([first, second], out="both.html").path` is where the page is.
    """
    several: Sequence[Any] = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    paths = [Path(getattr(run, "directory", run)) for run in several]
    target, unverified = write_report(paths, Path(out) if out is not None else None)
    return Report(target, tuple(read_runs(paths)), tuple(unverified))
