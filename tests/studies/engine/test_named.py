"""Engines by their names."""

from __future__ import annotations

import sys

import pytest

from gossamer.errors import UserError
from gossamer.studies.engine.local import Local
from gossamer.studies.engine.named import find_engine


@pytest.mark.parametrize(
    ("text", "jobs", "sentence"),
    [
        ("ray", None, r"--engine ray is not known; it can be local or dask:ADDRESS, for example dask:tls:"),
        ("local:here", None, r"--engine local:here has no address; use --engine local\."),
        ("dask:", None, r"--engine dask: names no scheduler; give its address"),
        ("dask:a b", None, r"names no scheduler"),
        ("dask:tcp://h:1", 3, r"--jobs 3 is for --engine local; a cluster does as many at a time as its"),
        ("local", 0, r"--jobs 0 must be a whole number of at least 1\."),
    ],
)
def test_mistakes_are_sentences(text: str, jobs: int | None, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        find_engine(text, jobs)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"needs Dask, which is missing; pip install 'gossamer\[cluster\]'"):
        find_engine("dask:tcp://127.0.0.1:1")
    assert isinstance(find_engine("local", 2), Local)
