"""`gossamer.audit`: the front door of audits, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.run.api import a_path, configure
from gossamer.studies.audit import command


def audit(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    observer: str = "all",
    canary: str | None = None,
    runs: int | None = None,
    confidence: float = 0.999,
    out: Path | str | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Attack what the run would release; what `gossamer audit --json` prints.

    `module` replaces the configuration's model by your own; then a record is also searched for that moves a sum by more
    than its clip (`canary="sensitivity"`: that alone, and thoroughly).
    """
    return command.audit(
        configure(recipe, changes),
        module=module,
        observer=observer,
        canary=canary,
        runs=runs,
        confidence=confidence,
        out=a_path(out),
        data_dir=a_path(data_dir),
        force=force,
    )
