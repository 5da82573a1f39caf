"""A part of the book run again: what lies where the book has it, and what does not."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.studies.cells import Cell
from reproductions.again import differences, tolerance
from reproductions.known import settings_of

SETTINGS = settings_of(Cell(resolve(recipes.read("quickstart")), "quickstart"))


def made(values: list[float | None], **changes: Any) -> dict[str, Any]:
    figures = {"metric": "accuracy", "values": values, "epsilon_claimed": 1.0, "epsilon_proven": 3.0,
               "settings": {"rounds": 10}} | changes  # fmt: skip
    return {"settings": SETTINGS, "cells": [{"labels": {"method": "a"}, "modes": {"paper": figures}}]}


BOOK = made([80.0, 81.0, 82.0])


def test_a_figure_where_nearly_all_runs_lie_is_accepted() -> None:
    # One run against the mean of three, deviation 1, two degrees of freedom: t would allow 32 deviations, 5 are.
    assert differences(made([81 + 5.7]), BOOK) == (1, {})
    assert list(differences(made([81 + 5.8]), BOOK)[1]) == ["a, paper mode"]  # 5 · sqrt(1 + 1/3) = 5.77
    narrow = made([81.0, 81.0, 81.0])
    assert differences(made([82.9]), narrow)[1] == {}
    assert differences(made([83.1]), narrow)[1] != {}


def test_the_deviation_is_that_of_all_cells_or_a_larger_one_of_its_own() -> None:
    spread = {"accuracy": (1.0, 20)}  # t: 3.85 deviations
    quiet, loud = ({"metric": "accuracy", "values": values} for values in ([81.0] * 3, [71.0, 81.0, 91.0]))
    assert tolerance(quiet, 1, spread) == pytest.approx(3.8495 * math.sqrt(4 / 3), rel=1e-4)
    assert tolerance(loud, 1, spread) == pytest.approx(38.495 * math.sqrt(4 / 3), rel=1e-4)
    # Two cells of deviations 0 and 1, four degrees of freedom: 0.71 each, and still 5 deviations.
    book = made([80.0, 81.0, 82.0])
    book["cells"].append(
        {"labels": {"method": "b"}, "modes": {"paper": made([50.0] * 3)["cells"][0]["modes"]["paper"]}}
    )
    other = made([50 + 4.0])
    other["cells"][0]["labels"] = {"method": "b"}
    assert differences(other, book) == (1, {})
    other["cells"][0]["modes"]["paper"]["values"] = [50 + 4.2]
    assert differences(other, book)[1] != {}


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
