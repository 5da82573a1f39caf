"""Figures in words and colours."""

from __future__ import annotations

from gossamer.results.figure_words import coloured, graph_line


def test_a_graph_is_described_and_what_is_not_known_left_out() -> None:
    several = {
        "directed": True, "rounds looked at": 3, "spectral gap": 1.0, "spectral gap per round": 0.5, "diameter": 3,
        "rounds until strongly connected": 3, "mean out-degree": 1.0,
    }  # fmt: skip
    assert graph_line(several) == (
        "directed, diameter 3, connected over any 3 rounds, each node sends to 1 other a round, "
        "spectral gap 1 over 3 rounds (0.5 per round)"
    )
    exact = {"directed": True, "rounds looked at": 5, "spectral gap": 1.0, "spectral gap per round": None}
    assert graph_line(exact) == "directed, spectral gap 1 over 5 rounds"
    one = {"directed": False, "rounds until strongly connected": 1, "mean out-degree": 2.5, "diameter": None}
    assert graph_line(one) == "undirected, connected in every round, each node sends to 2.5 others a round"


def test_what_is_proven_stands_out_and_infinity_warns() -> None:
    def styles(line: str) -> dict[str, str]:
        text = coloured(line)
        return {text.plain[span.start : span.end]: str(span.style) for span in text.spans}

    found = styles(
        "proven ε = 2.5   claimed ε = 1   audited ε ≥ —   (δ = 1e-05, add-remove, unit: one record)"
    )
    assert found["proven ε = 2.5"] == "bold green"
    assert found["claimed ε = 1"] == "yellow"
    assert found["audited ε ≥ —"] == "dim"
    assert styles("proven ε = ∞   claimed ε = 1")["proven ε = ∞"] == "bold red"
    assert styles("observer: everyone") == {}
