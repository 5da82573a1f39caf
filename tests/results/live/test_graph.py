"""The drawings: who sends to whom in which round, and a link's state by more than its colour."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from gossamer.results.live.graph import LOOKS, link_states, topology

SVG = "{http://www.w3.org/2000/svg}"
TWO_ROUNDS = {
    "kind": "changing",
    "nodes": 4,
    "period": 2,
    "edges": [[[0, 1], [1, 0]], [[2, 3], [3, 0]]],
    "figures": {"directed": True},
}


def drawn(text: str) -> ElementTree.Element:
    found = re.search("<svg.*</svg>", text, re.S)
    assert found
    return ElementTree.fromstring(found[0])


@pytest.mark.parametrize(("done", "arrows"), [(0, 0), (1, 2), (2, 2), (3, 2)])
def test_the_links_of_the_last_round_have_arrows(done: int, arrows: int) -> None:
    root = drawn(topology(TWO_ROUNDS, done))
    lines = list(root.iter(f"{SVG}line"))
    heads = [line for line in lines if "marker-end" in line.attrib]
    assert len(heads) == arrows
    if arrows:
        centre = list(root.iter(f"{SVG}circle"))
        sender = 0 if done % 2 else 2  # of the first link in order
        assert float(heads[0].attrib["x1"]) == float(centre[sender].attrib["cx"])
    assert [text.text for text in root.iter(f"{SVG}text")] == ["0", "1", "2", "3"]


def test_of_a_graph_that_never_repeats_no_round_is_singled_out() -> None:
    assert "marker-end" not in topology({**TWO_ROUNDS, "period": None}, 1)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"nodes": "4"},
        {"nodes": True},
        {"nodes": 10**9, "edges": []},
        {"nodes": 3, "edges": "no"},
        {"nodes": 3, "edges": [[[0, 7], [0], "x", [0, 0], [-1, 1], [0.5, 1], None]]},
        {"nodes": 150, "edges": [[[a, b] for a in range(150) for b in range(150)]]},
        {"nodes": 2, "kind": "<script>", "edges": [[[0, 1]]], "figures": 7, "period": "x"},
    ],
)
def test_what_is_no_graph_is_words_or_left_out(content: dict[str, object]) -> None:
    text = topology(content, 3)
    assert len(text) < 20_000
    assert "<script" not in text
    assert "<line" not in text or content["nodes"] == 2


def test_a_links_state_shows_by_colour_dashes_sign_and_word() -> None:
    text = link_states("here", {"a": "up", "b": "suspect", "<i>c</i>": "down"})
    assert "<i>" not in text
    root = drawn(text)
    words = [one.text for one in root.iter(f"{SVG}text")]
    for state, (colour, dash, sign) in LOOKS.items():
        assert sign in words
        assert f"{sign} {state} (1)" in words
        assert any(
            line.attrib["stroke"] == colour and line.attrib.get("stroke-dasharray", "") == dash
            for line in root.iter(f"{SVG}line")
        )
    assert len({dash for _, dash, _ in LOOKS.values()}) == len(LOOKS)
    assert "1 up, 1 suspect, 1 down" in text


def test_a_site_alone_and_very_many_are_drawn() -> None:
    assert "0 up" in link_states("here", {})
    assert "The first 40 are drawn" in link_states("here", {f"s{i}": "up" for i in range(500)})
