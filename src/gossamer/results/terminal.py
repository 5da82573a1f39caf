"""The terminal, as all of gossamer writes to it: plain text, in which brackets are brackets."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.control import Control
from rich.text import Text

from gossamer.results.waiting import ended

WIDE = 200  # columns off a terminal, where nobody cuts a line and a table must not be cut either
LEAST_TEXT = 30  # columns that are left for a text beside its name


class Terminal(Console):
    def print(self, *args: Any, **kwargs: Any) -> None:
        """The first words end the waiting for them."""
        if self.quiet:
            return
        if not (len(args) == 1 and isinstance(args[0], Control)):  # a bar's or the spinner's own moves
            ended()
        # A line of words: on a terminal no word of it is broken, elsewhere it stays one line for other programs.
        if (
            kwargs.get("soft_wrap")
            and self.is_terminal
            and len(args) == 1
            and isinstance(args[0], str | Text)
        ):
            text = args[0] if isinstance(args[0], Text) else Text(args[0])
            for line in _wrapped(text, self.width):
                super().print(line, **kwargs)
            return
        super().print(*args, **kwargs)

    def listing(self, entries: Mapping[str, str]) -> None:
        """Names with a text each, the texts below each other."""
        margin = max(map(len, entries), default=0) + 2
        if not self.is_terminal or self.width - margin < LEAST_TEXT:
            for name, text in entries.items():
                self.print(f"{name:<{margin}}{text}", soft_wrap=True)
            return
        for name, text in entries.items():
            first, *others = textwrap.wrap(
                text, self.width - margin, break_long_words=False, break_on_hyphens=False
            ) or [""]
            self.print(Text.assemble((f"{name:<{margin}}", "bold"), first), soft_wrap=True)
            for line in others:
                self.print(" " * margin + line, soft_wrap=True)


def terminal(*, to_stderr: bool = False, silent: bool = False) -> Terminal:
    """Markup is off: 'pip install gossamer[track]' would lose its end, and a user's file names their brackets.

    Colours are rich's affair: none off a terminal, none where NO_COLOR is set.
    """
    made = Terminal(stderr=to_stderr, quiet=silent, highlight=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDE
    return made


def _wrapped(text: Text, width: int) -> list[Text]:
    """Broken at spaces alone, what follows set in a little; colours stay where they were."""
    plain = text.plain
    lines, start, limit = [], 0, width
    while len(plain) - start > limit:
        cut = plain.rfind(" ", start, start + limit + 1)
        if cut <= start:  # a word that is longer than the line stays whole
            cut = plain.find(" ", start + limit)
        if cut < 0:
            break
        lines.append(text[start:cut])
        start = cut + 1
        while start < len(plain) and plain[start] == " ":
            start += 1
        limit = max(width - 2, 1)
    lines.append(text[start:])
    return [line if k == 0 else Text("  ") + line for k, line in enumerate(lines) if k == 0 or line.plain]
