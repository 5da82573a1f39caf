"""Inputs that nobody meant end in one sentence, at once: no traceback, no hang. Seeded, bounded; findings are kept."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as bounded
from tests.support import fuzz

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def fuzzed(examples: int) -> bounded:
    """No database and no shrinking against the clock: the same inputs on every machine."""
    return bounded(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=QUIET,
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip


@pytest.mark.parametrize("texts", fuzz.kept("set"), ids=str)
def test_earlier_findings_of_settings_stay_mended(texts: list[str]) -> None:
    fuzz.configuration(texts)


@pytest.mark.parametrize("number", range(len(fuzz.kept("file"))))
def test_earlier_findings_of_files_stay_mended(number: int, tmp_path: Path) -> None:
    kind, content = fuzz.kept("file")[number]
    for draw in range(4):
        fuzz.data_file(tmp_path / "own", kind, base64.b64decode(content), np.random.default_rng(draw))


def test_a_hang_and_a_traceback_would_be_noticed() -> None:
    with pytest.raises(fuzz.HangError), fuzz.watched(1):
        time.sleep(5)
    with pytest.raises(ZeroDivisionError):
        fuzz.tries(lambda: 1 // 0)


@given(fuzz.settings())
@fuzzed(150)
def test_some_settings(texts: list[str]) -> None:
    fuzz.configuration(texts)


@pytest.mark.slow
@seed(20261116)
@given(fuzz.settings())
@fuzzed(4_000)
def test_many_settings(texts: list[str]) -> None:
    fuzz.configuration(texts)


@pytest.mark.parametrize("files", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_files(files: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(files)
    accepted = 0
    for number in range(files):
        kind, content = fuzz.tables(rng)
        try:
            accepted += fuzz.data_file(tmp_path / "own", kind, content, rng)
        except BaseException as error:
            error.add_note(f"file {number}: {kind} {base64.b64encode(content).decode()}")
            raise
    assert 0.03 * files < accepted < 0.9 * files  # some are sound, most are not
