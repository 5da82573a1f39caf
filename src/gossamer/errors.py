"""A user's mistake and a stop that the user asked for, and what their sentences show. Every package may import it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# A quoted text, a list, or a word without the mark behind it; `short` cuts off what is long, with an ellipsis.
_QUOTED, _WORD = r"""'(?:\\.|[^'\\])*?['…]|"(?:\\.|[^"\\])*?["…]""", r"\S+?(?=[:;,.]*(?:\s|$))"
_VALUE = rf"{_QUOTED}|\[.*?(?:\](?![],])|…)|\(.*?(?:\)(?![),])|…)|{_WORD}"
_VERB = (
    r"(?:is|are|was|were|has|have|holds|had|can|cannot|could|did|does|must|needs|would|no|not|and|already|states|names|"
    r"belongs|exists|asks|counts|line)\b"
)
# How a sentence begins: `[FILE: ]KEY = VALUE`, `--option VALUE`, a path, `NAME:`, or a name, perhaps with its number.
_BEGINNINGS = (
    rf"(?:[^=;]*?: |\S+, [^;]*?: )??(?:[a-z]+ ){{0,2}}(?P<key>[^\s=]+) = (?P<value>{_VALUE})",
    rf"(?:[^=;]*?: )??(?P<key>--[a-z-]+)(?: (?!{_VERB})(?P<value>{_VALUE}))?",
    rf"(?:\S+: |\S+, [^;]*?: |[^;/]*?: )??(?P<key>[a-z_]+(?:\.[\w\[\]]+)+)(?P<value>) {_VERB}",
    rf"(?:the \S+ )?(?P<key>\S*/[^=;:]*?|\S+\.\w+)(?P<value>) {_VERB}",
    r"(?P<key>\S*/[^=;:]*?|'[^']*'|[\w.-]+)(?P<value>): ",
    r"(?:(?:the|a|an|this|no|none of|two) )?(?P<key>'[^']*'|[^\s:;,=]+?)(?:'s)?(?: (?P<value>'[^']*'|\d+))?"
    r"(?=[\s:;,=]|$)",
)


class UserError(ValueError):
    """A mistake that a user can make: one sentence with the key, its value, the problem and the remedy.

    `KEY = VALUE problem; remedy.` A file may stand before it (`FILE: …`). The key may also be an option (`--seeds 0`),
    a path or another name (`roster 3`), and it may have no value. The remedy is behind the first semicolon; without one
    it is what the key `must` be. The command line prints the sentence without a traceback and exits with 2.

    >>> error = UserError("a.toml: topology.kind = 'rign' is not known; did you mean ring?")
    >>> error.key, error.value, error.remedy
    ('topology.kind', 'rign', 'did you mean ring?')
    """

    def __init__(self, sentence: str):
        super().__init__(sentence)
        self.key: str | None = None
        self.value: str | None = None
        parts = next(filter(None, (re.match(beginning, sentence, re.DOTALL) for beginning in _BEGINNINGS)), None)
        if parts is not None:
            self.key, self.value = parts["key"].strip("'"), (parts["value"] or "").strip("'\"") or None
        remedy = re.search(r"; (.+)|\b(must .+)", sentence[parts.end() :] if parts else "", re.DOTALL)
        self.remedy: str | None = remedy and (remedy[1] or remedy[2]).removesuffix(".")


def compose(key: str | None, value: object, problem: str, remedy: str | None = None) -> str:
    """The sentence of a `UserError` by its parts; those that are None are left out."""
    start = f"{key} " if value is None else f"{key} = {short(value)} "
    text = f"{start if key else ''}{problem}" + (f"; {remedy}" if remedy else "")
    return text if text.endswith((".", "?")) else f"{text}."


class StoppedError(Exception):
    """The user stopped the command; the text says how to resume. Exit 130.

    Not a KeyboardInterrupt: the command line's library would swallow that and its text.
    """


def short(value: object) -> str:
    """Show a value as a configuration would have it, in at most 60 characters."""
    if isinstance(value, str) and len(value) > 60:
        value = value[:60]
    try:
        text = ("true" if value else "false") if isinstance(value, bool) else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists without end
        return "a value too long to show"
    return text if len(text) <= 60 else text[:57] + "…"


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known name that is most like it: also one of `paper/table` by what stands behind the slash."""
    import difflib

    names = list(known)
    if not isinstance(word, str) or len(word) > 100:
        return None
    if close := difflib.get_close_matches(word.lower(), names, n=1):
        return close[0]
    ends = {name.rpartition("/")[2]: name for name in reversed(names)}
    matches = difflib.get_close_matches(word.lower().rpartition("/")[2], ends, n=1, cutoff=0.75)
    return ends[matches[0]] if matches else None


def ending(word: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    meant = nearest(word, known)
    return f"; did you mean {meant}?" if meant else "."
