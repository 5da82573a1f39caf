"""Kinds that a test hands over or registers are forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gossamer.algorithms import RULES, rule
from gossamer.config.methods import algorithms
from gossamer.data.load import datasets
from gossamer.mechanism.clipping import clips
from gossamer.mechanism.noise import families
from gossamer.models.losses import losses
from gossamer.topology.kinds import topologies

TABLES = [RULES, *(registry._kinds for registry in (datasets, clips, families, losses, topologies))]


def rules() -> dict[str, type[Any]]:
    """Every update rule by name."""
    return {name: rule(name) for name in RULES}


@contextmanager
def forgotten() -> Iterator[None]:
    before = [dict(table) for table in TABLES]
    try:
        yield
    finally:
        for table, known in zip(TABLES, before, strict=True):
            if table != known:
                table.clear()
                table.update(known)
        for name in [name for name in algorithms._made if name not in algorithms._known()]:
            algorithms.forget(name)
