"""Limits that depend on the records, as sentences."""

from pathlib import Path

import pytest

from gossamer.data.arrays import at_most, free_memory, in_words, listed, one_of, resident, room_for
from gossamer.errors import UserError


def test_both_ends_are_allowed():
    assert [at_most("k", value, 5) for value in (1, 5)] == [1, 5]
    assert at_most("k", 0, 5, least=0) == 0
    assert one_of("k", "b", iter("abc")) == "b"


@pytest.mark.parametrize(("value", "least"), [(0, 1), (6, 1), (-1, 0)])
def test_beyond_them_the_sentence_names_key_value_and_range(value, least):
    with pytest.raises(UserError, match=f"^data.rows = {value} must be a whole number from {least} to 5$"):
        at_most("data.rows", value, 5, least=least)


def test_a_wrong_word_is_shown_with_the_choices():
    with pytest.raises(UserError, match=r"^k = 'd' must be one of a, b$"):
        one_of("k", "d", iter("ab"))


def test_many_or_long_names_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    said = listed([str(i) * 50 for i in range(10)] * 2)
    assert said.endswith(" and 12 more")
    assert len(said) < 500


def test_memory_is_known_and_what_exceeds_it_refused() -> None:
    assert 1e6 < free_memory() < 1e15
    assert 1e7 < resident() < 1e12 or not Path("/proc/self/statm").exists()
    assert [in_words(size) for size in (2.5e12, 22e9, 1e6, 500)] == ["2.5 TB", "22 GB", "1 MB", "0.5 kB"]
    room_for("x", 1.0)
    with pytest.raises(
        UserError, match=r"x would take about 1e\+06 TB of memory, and this machine has .* free"
    ):
        room_for("x", 1e18)
