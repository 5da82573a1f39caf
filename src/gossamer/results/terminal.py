"""The terminal: plain text without markup, and a spinner until the first of it is printed."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from gossamer.options.stage import STAGES

WIDE = 400  # columns off a terminal, where no line is cut and a table must not be cut either


class Terminal(Console):
    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print, and end the spinner; with `soft_wrap` no word is broken, and off a terminal no line."""
        if self.quiet:
            return
        end_spinner()
        if not (kwargs.get("soft_wrap") and self.is_terminal and args):
            super().print(*args, **kwargs)
            return
        text = args[0] if isinstance(args[0], Text) else Text(args[0])
        # As many characters as fit, up to the end of a word; else one long word.
        for line in re.finditer(rf"\S(?:.{{0,{self.width - 2}}}\S)?(?=\s|$)|\S+", text.plain):
            super().print(text[line.start() : line.end()], **kwargs)

    def listing(self, entries: Mapping[str, str]) -> None:
        """Print names with a text each, the texts aligned."""
        if not self.is_terminal:
            margin = max(map(len, entries), default=0) + 2
            for name, text in entries.items():
                self.print(f"{name:<{margin}}{text}", soft_wrap=True)
            return
        table = Table(Column(no_wrap=True), Column(), box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, text in entries.items():
            table.add_row(Text(name, "bold"), Text(text))
        self.print(table)


def terminal(*, to_stderr: bool = False, silent: bool = False) -> Terminal:
    """Return a console without markup: 'pip install gossamer[track]' would lose its end, file names their brackets.

    Colours are left to rich: none off a terminal, none where NO_COLOR is set.
    """
    console = Terminal(stderr=to_stderr, quiet=silent, highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


class _Spinner(logging.Handler):
    """A spinner on stderr with the stage that the program logged last."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._status = Status(Text(f"{text} …"), console=Console(stderr=True, markup=False))
        self._status.start()

    def emit(self, record: logging.LogRecord) -> None:
        if text := record.getMessage():
            self._status.update(Text(f"{text} …"))
        else:  # a bar takes over
            end_spinner()

    def close(self) -> None:
        self._status.stop()
        super().close()


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show what is being done until the first print, on a terminal; ranks under torchrun show none."""
    if "LOCAL_RANK" in os.environ or not sys.stderr.isatty():
        yield
        return
    level, propagate = STAGES.level, STAGES.propagate
    STAGES.addHandler(_Spinner(text))
    STAGES.setLevel(logging.INFO)
    STAGES.propagate = False
    try:
        yield
    finally:
        end_spinner()
        STAGES.setLevel(level)
        STAGES.propagate = propagate


def end_spinner() -> None:
    for handler in STAGES.handlers[:]:
        if isinstance(handler, _Spinner):
            STAGES.removeHandler(handler)
            handler.close()
