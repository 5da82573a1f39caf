"""Sentences for an operator: one line, printable, not over and over."""

from __future__ import annotations

import logging

import pytest

from gossamer.consortium.notices import Notices, plain


def test_the_same_sentence_is_said_once_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        notices = Notices()
        for _ in range(1000):
            notices.say("refused a.")
        notices.say("refused b.")
    assert [record.message for record in caplog.records] == ["refused a.", "refused b."]


def test_it_is_said_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        notices = Notices(again=0.0)
        notices.say("refused a.")
        notices.say("refused a.")
    assert len(caplog.records) == 2


def test_memory_for_what_was_said_is_bounded() -> None:
    notices = Notices()
    for i in range(5000):
        notices.say(f"refused {i}.")
    assert len(notices._said) == 256


def test_no_line_is_forged_by_what_others_say() -> None:
    said = plain("x\nWARNING all is well\x1b[2J" + "y" * 1000)
    assert said.startswith("x WARNING all is well [2J")
    assert len(said) == 200
