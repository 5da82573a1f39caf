"""A user's mistake and a stop that the user asked for, and what their sentences show. Every package may import it."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that a user can make: one sentence with the key, its value, the problem and the remedy.

    The command line prints the sentence without a traceback and exits with 2.

    >>> print(UserError("must be at least 1", key="nodes", value=0))
    nodes = 0 must be at least 1.
    >>> print(UserError("is not a key I know", key="rouds", remedy="did you mean rounds?"))
    rouds is not a key I know; did you mean rounds?
    """

    def __init__(
        self,
        problem: str,
        *,
        key: str | None = None,
        value: object = None,
        remedy: str | None = None,
        where: str | None = None,
    ):
        """Compose the sentence; without `key` and `remedy`, `problem` is the whole sentence. `where`: the file."""
        self.problem, self.key, self.value, self.remedy = problem, key, value, remedy
        text = problem
        if key is not None:
            text = f"{key} {problem}" if value is None else f"{key} = {short(value)} {problem}"
        if remedy is not None:
            text = f"{text}; {remedy}"
        if (key, remedy) != (None, None) and not text.endswith((".", "?")):
            text += "."
        super().__init__(f"{where}: {text}" if where else text)


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
