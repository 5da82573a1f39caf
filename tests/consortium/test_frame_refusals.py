"""Refusals are counted, and written so often that an operator sees them and so seldom that no disk fills."""

from __future__ import annotations

import logging

import pytest

from gossamer.consortium.frame_refusals import AGAIN, MOST, Refusals


def test_a_million_refusals_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        for k in range(10_000):
            refusals.say("eve", f"it has {k} bytes")
        refusals.say("bob", "its weight is 0")
        now[0] += AGAIN
        refusals.say("eve", "it holds NaN")
    assert refusals.count == 10_002
    assert len(caplog.messages) == MOST + 1 + 1 + 2
    assert caplog.messages[MOST] == "further frames of eve are refused without a word for a minute"
    assert caplog.messages[-3:] == [
        "a frame of bob was refused: its weight is 0",
        f"{10_000 - MOST} more frames of eve were refused",
        "a frame of eve was refused: it holds NaN",
    ]
