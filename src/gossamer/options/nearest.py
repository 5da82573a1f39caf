"""The known name that is closest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known name that is most like it: also one of `paper/table` by what stands behind the slash."""
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
