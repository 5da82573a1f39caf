"""A stage is a word to the log, which nobody sees who does not ask."""

from __future__ import annotations

import logging

import pytest

from gossamer.options.stage import stage


def test_a_stage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gossamer.stage"):
        stage("reading the data")
    assert caplog.messages == ["reading the data"]
