"""Drawings: every curve, interval and printed number, inside of the picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.support.result_files import figures, grid, made

from reproductions.definition import Book
from reproductions.drawing import drawing


def test_a_drawing_has_every_curve_interval_and_printed_number() -> None:
    svg = drawing(
        grid(a=([80.0, 81.0, 82.0], 84.0), b=([60.0, 61.0, 62.0], None)),
        Book(verdict="not", reason="", x="budget", curve="method"),
    )
    assert svg is not None
    root = ElementTree.fromstring(svg)
    kinds = [element.tag.rsplit("}", 1)[-1] for element in root.iter()]
    assert kinds.count("polyline") == 4  # two methods in two modes
    assert kinds.count("circle") == 8
    assert kinds.count("path") == 2  # diamonds: what the paper prints
    words = [element.text for element in root.iter() if element.text]
    assert {"a", "b", "ε = 1", "ε = 3", "diamond: printed in the paper"} <= set(words)
    # Everything lies inside of the drawing.
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for number, most in ((r'c?x[12]?="([-\d.]+)"', width), (r'c?y[12]?="([-\d.]+)"', height)):
        assert all(0 <= float(found) <= most for found in re.findall(number, svg))


def test_a_baseline_that_no_budget_moves_is_a_level_line() -> None:
    item = grid(a=([80.0], 84.0))
    item["cells"].append(
        {"labels": {"method": "none", "budget": "any ε"}, "source": "", "printed": None, "paper_mean": None,
         "paper_std": None, "modes": {"paper": figures([90.0])}}
    )  # fmt: skip
    svg = drawing(item, Book(verdict="not", reason="", x="budget", curve="method"))
    assert svg is not None
    assert "any ε" not in svg
    level = re.findall(r'points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"', svg)[-1]
    assert level[1] == level[3]
    assert float(level[0]) < float(level[2])


def test_a_history_is_drawn_over_rounds() -> None:
    item = grid(a=([80.0], None))
    for one in item["cells"]:
        one["modes"] = {"paper": figures([80.0], history=[[[10, 50.0], [20, 80.0]]])}
    svg = drawing(item, Book(verdict="not", reason="", curve="method", history=True))
    assert svg is not None
    assert "ε = 1, paper mode" in svg
    assert drawing(made([]), Book(verdict="not", reason="", x="a")) is None


def test_an_audits_losses_are_drawn_with_and_without_the_canary() -> None:
    found = {"edges": [-3.0, -2.0, -1.0], "in": [0.25, 0.75], "out": [1.0, 0.0]}
    figures = {"metric": "audit.auc", "values": [0.9], "histograms": [found]}
    cell = {"labels": {"budget": "ε = 1"}, "paper_mean": None, "paper_std": None, "modes": {"paper": figures}}
    drawn = drawing({"cells": [cell]}, Book(verdict="reproduced", reason="", x="loss"))
    assert drawn is not None
    assert drawn.count("<polyline") == 2
    for words in (
        "trained with the canary",
        "trained without it",
        "share of trainings",
        ">loss<",
        ">1.5<",
        ">2.5<",
    ):
        assert words in drawn


def test_errors_that_differ_by_far_stand_on_a_logarithmic_axis() -> None:
    item = grid(a=([0.01], None), b=([1.0], None))
    for one in item["cells"]:
        for found in one["modes"].values():
            found["metric"] = "truth_rmse"
            found["values"] = [0.01 if one["labels"]["method"] == "a" else 1.0]
    svg = drawing(item, Book(verdict="not", reason="", x="budget", curve="method"))
    assert svg is not None
    marks = [float(text) for text in re.findall(r">([\d.]+)</text>", svg)]
    assert {0.01, 0.1, 1.0} <= set(marks)
    heights = sorted({float(y) for y in re.findall(r'cy="([\d.]+)"', svg)})
    assert len(heights) == 2
