"""What was probably meant."""

from __future__ import annotations

import pytest

from gossamer.errors import ending, nearest

NAMES = ["quickstart", "dyn-d2p/fashion-mnist", "dyn-d2p/dirac"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("quikstart", "quickstart"),
        ("QUICKSTART", "quickstart"),
        ("fashion-mnist", "dyn-d2p/fashion-mnist"),
        ("dyn-d2p/diracs", "dyn-d2p/dirac"),
        ("something else", None),
        (7, None),
        ("q" * 1000, None),
    ],
)
def test_the_most_like_name_also_by_its_end(word: object, meant: str | None) -> None:
    assert nearest(word, NAMES) == meant
    assert ending(word, NAMES) == (f"; did you mean {meant}?" if meant else ".")
