"""What one node and an outsider learn of another node, in words; see docs/network.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.results.certificate import epsilon_text


def network_lines(figures: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(who looks on, ε with what it is about); nothing where that has no figure."""
    if not figures:
        return []
    worst = figures["worst_pair"]
    return [
        (
            "one node, which sees what reaches it",
            f"ε ≤ {epsilon_text(worst['epsilon'])} (worst pair: records of node {worst['node']}, seen by node "
            f"{worst['observer']})",
        ),
        ("an outsider, who sees the model of every round", f"ε ≤ {epsilon_text(figures['outsider'])}"),
    ]
