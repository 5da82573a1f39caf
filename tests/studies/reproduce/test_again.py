"""A part of the book run again: what lies where the book has it, and what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.studies.compare.grid import Cell
from gossamer.studies.reproduce.again import differences, tolerance
from gossamer.studies.reproduce.record import settings_of

SETTINGS = settings_of(Cell(resolve(recipes.read("quickstart")), "quickstart"))


def made(values: list[float | None], **changes: Any) -> dict[str, Any]:
    figures = {"metric": "accuracy", "values": values, "epsilon_claimed": 1.0, "epsilon_proven": 3.0,
               "settings": {"rounds": 10}} | changes  # fmt: skip
    return {"settings": SETTINGS, "cells": [{"labels": {"method": "a"}, "modes": {"paper": figures}}]}


BOOK = made([80.0, 81.0, 82.0])


def test_a_figure_within_three_deviations_or_two_points_is_accepted() -> None:
    # One run against the mean of three, deviation 1: 3 · sqrt(1 + 1/3) = 3.46 points.
    assert tolerance(BOOK["cells"][0]["modes"]["paper"], 1) == pytest.approx(3.4641)
    assert differences(made([84.4]), BOOK) == (1, {})
    assert list(differences(made([84.5]), BOOK)[1]) == ["a, paper mode"]
    narrow = made([81.0, 81.0, 81.0])
    assert differences(made([82.9]), narrow)[1] == {}
    assert differences(made([83.1]), narrow)[1] != {}


def test_other_figures_may_differ_by_a_quarter() -> None:
    book = made([0.4], metric="truth_rmse")
    assert differences(made([0.49], metric="truth_rmse"), book)[1] == {}
    assert "0.51" in differences(made([0.51], metric="truth_rmse"), book)[1]["a, paper mode"]


def test_another_epsilon_shows_though_the_accuracy_is_the_same() -> None:
    found = differences(made([81.0], epsilon_proven=3.1), BOOK)[1]
    assert "epsilon_proven is 3.1, but 3.0 in the book" in found["a, paper mode"]
    assert differences(made([81.0], epsilon_proven=None), BOOK)[1] != {}
    assert differences(made([81.0], epsilon_proven=3.05), BOOK)[1] == {}


def test_other_settings_and_cells_are_named() -> None:
    found = differences(made([81.0], settings={"rounds": 11}), BOOK)[1]
    assert found == {"a, paper mode": "its settings are not the book's: rounds."}
    older = copy.deepcopy(BOOK)  # made before there was such a key: it had its default
    older["settings"] = {key: value for key, value in SETTINGS.items() if key != "privacy.runs"}
    assert differences(made([81.0]), older) == (1, {})
    older["settings"]["privacy.runs"] = 2
    assert "privacy.runs" in differences(made([81.0]), older)[1]["a, paper mode"]
    older["settings"]["privacy.nonsense"] = 2
    assert "none any more" in differences(made([81.0]), older)[1]["a, paper mode"]
    other = copy.deepcopy(BOOK)
    other["cells"][0]["labels"]["method"] = "b"
    assert differences(other, BOOK) == (0, {"b, paper mode": "it is not in the book."})
    assert "no figure" in differences(made([None]), BOOK)[1]["a, paper mode"]
