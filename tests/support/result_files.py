"""Result files as the book reads them, made up."""

from __future__ import annotations

from typing import Any


def figures(values: list[float], **more: Any) -> dict[str, Any]:
    return {
        "metric": "accuracy", "values": values, "worst_node": [], "seconds": [1.0] * len(values),
        "epsilon_claimed": 1.0, "epsilon_proven": 3.75, "not_proven_because": None, "not_private": None,
        "delta": 1e-4, "adjacency": "add-remove", "unit": "one record of one node", "observer": "everyone",
        "stamp": None, "seeds": list(range(len(values))), "settings": {}, "commit": "abc", **more,
    }  # fmt: skip


def made(cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "item": "x/table1", "title": "T", "paper": "P", "cut": [], "settings": {},
        "made": {"gossamer": "0", "date": "2026-01-01", "python": "3", "torch": "2",
                 "machine": "m", "seconds": 200.0},
        "cells": cells,
    }  # fmt: skip


def grid(**rows: tuple[list[float], float | None]) -> dict[str, Any]:
    return made(
        [
            {
                "labels": {"method": name, "budget": budget},
                "source": "Table 1",
                "printed": None if paper is None else f"{paper}",
                "paper_mean": paper,
                "paper_std": None,
                "modes": {"paper": figures([v + k for v in values]), "sound": figures(values)},
            }
            for name, (values, paper) in rows.items()
            for k, budget in enumerate(("ε = 1", "ε = 3"))
        ]
    )
