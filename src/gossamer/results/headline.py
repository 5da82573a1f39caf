"""Which metric of a run is the one to read, and what it is called."""

from __future__ import annotations

from typing import Any

JUDGED = (
    "accuracy_",
    "rmse_",
    "loss_",
    "truth_rmse_",
    "hold_out_rows",
    "consensus_distance",
)  # an evaluation's keys
UNITS = {"accuracy": "accuracy (%)", "rmse": "RMSE", "truth_rmse": "RMSE to the truth"}


def headline(row: dict[str, Any]) -> str | None:
    """The metric a line is read for: what it says itself, else what the hold-out measured; None without one."""
    said: str | None = row.get("metric")
    return said or next((name for name in ("accuracy", "rmse") if f"{name}_mean" in row), None)


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """A line with the figures it is read by at its top, wherever they stand: those under `not_private` have no ε."""
    hidden = row.get("not_private") or {}
    return {**{key: value for key, value in hidden.items() if key.startswith(JUDGED)}, **row}


def no_epsilon_covers(row: dict[str, Any]) -> str | None:
    """Why the figures that a line is read by are not private; None where they are what everyone could compute."""
    because: str | None = (row.get("not_private") or {}).get("because")
    return because
