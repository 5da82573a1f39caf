"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms import registry


def rules() -> dict[str, Any]:
    """Every update rule by name."""
    from gossamer.methods.km.algorithm import KM
    from gossamer.methods.without_replacement.algorithm import Collaborative

    return {**registry(), "km": KM, "collaborative": Collaborative}
