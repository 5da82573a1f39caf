"""The terminal, as all of gossamer writes to it: plain text, in which brackets are brackets."""

from __future__ import annotations

from rich.console import Console


def terminal(*, to_stderr: bool = False, silent: bool = False) -> Console:
    """Markup is off: 'pip install gossamer[report]' would lose its end, and a user's file names their brackets."""
    return Console(stderr=to_stderr, quiet=silent, highlight=False, markup=False)
