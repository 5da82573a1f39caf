"""Limits that depend on the records; what can be said without them stands in the annotations of the options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossamer.errors import UserError


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
