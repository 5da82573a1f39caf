"""Progress of steps that may take seconds: a log record for each, or a bar on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STAGES = logging.getLogger("gossamer.stage")


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, log the label elsewhere; yields the function that moves the bar on."""
    if not sys.stderr.isatty():
        STAGES.info(label)
        yield lambda _advance: None
        return
    STAGES.info("")  # a bar shows from here on what is done
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda advance: bar.update(task, advance=advance)
