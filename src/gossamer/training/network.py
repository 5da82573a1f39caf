"""What a certificate says that one node and an outsider learn, computed again from configuration and ledgers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from gossamer.config.layers import stored
from gossamer.errors import UserError
from gossamer.results.rundir import read_object
from gossamer.training.plan import Plan
from gossamer.training.views import network_figures

UNCHECKED = "what one node and an outsider learn is as the certificate states it: {}"
_CLOSE = 1e-3  # relative: figures of pairs are rounded up by less


def check_network(run: Path) -> str | None:
    """A sentence where it could not be computed again, None where it agrees or nothing is stated."""
    path = run / "certificate.json"
    if not path.exists() or (certificate := read_object(path, "network"))["network"] is None:
        return None
    try:
        o = Plan.of(stored(run / "config.toml"), force=True)
    except UserError as error:
        return UNCHECKED.format(error)
    here = not any("stated_by" in one for one in certificate["epsilon_by_node"])
    found = network_figures(o, run if here else None)
    due = _numbers(found)
    said = _numbers(certificate["network"])
    if len(due) != len(said) or any(
        not math.isclose(a, b, rel_tol=_CLOSE) for a, b in zip(due, said, strict=True)
    ):
        raise UserError(f"{path} states other figures under 'network' than the ledgers have.")
    return None


def _numbers(figures: Any) -> list[float]:
    """Every number in it, in order; −1 for whatever is none."""
    if isinstance(figures, dict):
        return [n for key in sorted(figures) for n in _numbers(figures[key])]
    if isinstance(figures, list):
        return [n for item in figures for n in _numbers(item)]
    return [float(figures)] if type(figures) in (int, float) else [-1.0]
