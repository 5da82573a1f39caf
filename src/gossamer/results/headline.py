"""Which metric of a run is the one to read, and what it is called."""

from __future__ import annotations

from typing import Any

UNITS = {"accuracy": "accuracy (%)", "rmse": "RMSE", "truth_rmse": "RMSE to the truth"}


def headline(row: dict[str, Any]) -> str | None:
    """The metric a line is read for: what it says itself, else what the hold-out measured; None without one."""
    said: str | None = row.get("metric")
    return said or next((name for name in ("accuracy", "rmse") if f"{name}_mean" in row), None)
