"""Lines become a picture that any reader of XML takes, with names as they are."""

from __future__ import annotations

from xml.etree import ElementTree

from gossamer.results.line_plot import Line, line_plot

SVG = "{http://www.w3.org/2000/svg}"


def test_lines_have_names_axes_and_points_in_order() -> None:
    lines = [
        Line("a <b> & c", ((3.0, 0.5), (1.0, 0.1))),
        Line("level", ((1.0, 0.9), (3.0, 0.9)), dashed=True),
    ]
    root = ElementTree.fromstring(line_plot(lines, "round", "accuracy"))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a <b> & c", "level", "round", "accuracy", "1", "3"} <= set(words)
    assert {"0.25", "0.5", "0.75"} <= set(words)  # round marks, wherever the values lie
    first, second = root.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in first.attrib["points"].split())
    assert x0 < x1
    assert y0 > y1  # higher is further up
    assert "stroke-dasharray" in second.attrib
    assert "stroke-dasharray" not in first.attrib


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    root = ElementTree.fromstring(
        line_plot([Line("a", ((1, 1), (10, 2), (100, 3)))], "ε", "y", logarithmic=True)
    )
    (line,) = root.iter(f"{SVG}polyline")
    x = [float(pair.split(",")[0]) for pair in line.attrib["points"].split()]
    assert abs((x[1] - x[0]) - (x[2] - x[1])) < 0.2


def test_nothing_and_one_point_are_drawn_too() -> None:
    assert line_plot([], "x", "y") == ""
    assert line_plot([Line("a", ())], "x", "y") == ""
    ElementTree.fromstring(line_plot([Line("a", ((2.0, 2.0),))], "x", "y"))
    ElementTree.fromstring(line_plot([Line("a", ((0.0, 0.0),))], "x", "y"))


def test_the_size_and_the_dots_are_as_asked() -> None:
    lines = [Line("a", ((0.0, 1.0), (1.0, 2.0)))]
    plain = ElementTree.fromstring(line_plot(lines, "x", "y"))
    small = ElementTree.fromstring(line_plot(lines, "x", "y", size=(400, 240), dots=False))
    assert (plain.attrib["viewBox"], small.attrib["viewBox"]) == ("0 0 640 356", "0 0 400 256")
    assert len(list(plain.iter(f"{SVG}circle"))) == 2
    assert not list(small.iter(f"{SVG}circle"))
    right = [
        float(pair.split(",")[0]) for pair in next(small.iter(f"{SVG}polyline")).attrib["points"].split()
    ]
    assert max(right) < 400
