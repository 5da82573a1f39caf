"""What a refusal names: tests check the key, its value, the remedy and the things in it, never its wording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import UserError


@contextmanager
def expect_refusal(
    key: object = None,
    value: object = None,
    names: str | Iterable[object] = (),
    remedy: bool = False,
    error: type[ValueError] = UserError,
) -> Iterator[pytest.ExceptionInfo[ValueError]]:
    """Expect a `UserError` that `assert_names` accepts, or another error with such a sentence."""
    with pytest.raises(error) as caught:
        yield caught
    assert_names(caught.value, key, value, names, remedy)


def assert_names(
    sentence: object,
    key: object = None,
    value: object = None,
    names: str | Iterable[object] = (),
    remedy: bool = False,
) -> None:
    """Check a `UserError`, or what a command printed, with the sentence of one in the last line.

    `key`: what the sentence is about; of a file its name will do. `value`: of the key, as text. `names`: things that
    the sentence must contain as whole words, such as options, files, kinds and numbers; a string has them separated by
    spaces. `remedy`: whether the sentence must say what would be right.
    """
    text = str(sentence).strip()
    error = (
        sentence
        if isinstance(sentence, UserError)
        else UserError(text.splitlines()[-1].removeprefix("gossamer: ").removeprefix("reproductions: "))
    )
    if key is not None:
        assert str(key) in (error.key, Path(error.key or "").name), (text, error.key)
    if value is not None:
        assert error.value == str(value), (text, error.value)
    for name in names.split() if isinstance(names, str) else names:
        assert _has(text, str(name)), (text, name)
    assert error.remedy or not remedy, text


def _has(text: str, name: Any) -> bool:
    """Whether the name is in the text and does not go on there: 1 is not in 10, nor data.test in data.test_rows."""
    start, end = (r"(?<!\w)" if name[:1].isalnum() else ""), (r"(?![\w-]|\.\w)" if name[-1:].isalnum() else "")
    return re.search(start + re.escape(name) + end, text) is not None
