"""Limits that depend on the records; what can be said without them stands in the annotations of the options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from gossamer.errors import UserError

MOST_COLUMNS = 20_000  # of a table; more is refused by name, not tried


def at_most(key: str, value: int, most: int, *, least: int = 1) -> int:
    if not least <= value <= most:
        raise UserError(f"{key} = {value} must be a whole number from {least} to {most}")
    return value


def one_of(key: str, value: str, choices: Iterable[str]) -> str:
    choices = list(choices)
    if value not in choices:
        raise UserError(f"{key} = {value!r} must be one of {', '.join(choices)}")
    return value


def listed(names: Sequence[str]) -> str:
    """Names for a sentence: some of them where there are many, each cut where it is long."""
    shown = ", ".join(name if len(name) <= 40 else f"{name[:39]}…" for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def free_memory() -> float:
    """Bytes that could be had now, as the system and this process' control group say; ∞ where neither does."""
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found += [float(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            found += [float(limit) for limit in [file.read().strip()] if limit.isdigit()]
    except (OSError, ValueError, IndexError):
        if not found and hasattr(os, "sysconf"):
            found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    return min(found, default=float("inf"))


def resident() -> float:
    """Bytes that this process holds already; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0


def in_words(size: float) -> str:
    """Bytes for a person."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1e3:.3g} kB"


def room_for(what: str, size: float) -> None:
    """Refuse what would not fit into memory, before any of it is allocated."""
    free = free_memory()
    if size > free:
        raise UserError(
            f"{what} would take about {in_words(size)} of memory, and this machine has {in_words(free)} free"
        )
