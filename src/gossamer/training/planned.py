"""What `gossamer.plan` gives: the outline of a run, as a person or a notebook wants to see it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from gossamer.planning.outline import Outline
from gossamer.results.console import summary
from gossamer.results.notebook import plan_html, plan_text


@dataclass(frozen=True, repr=False)
class Plan(Outline):
    """What a run would cost; nothing was trained. Shows itself as a table and the growth of ε in a notebook."""

    @classmethod
    def of(cls, o: Outline) -> Plan:
        return cls(**{field.name: getattr(o, field.name) for field in fields(Outline)})

    @cached_property
    def result(self) -> dict[str, Any]:
        """What `gossamer plan --json` prints, but for what was spent on the same records before."""
        return summary(self)

    @property
    def epsilon_proven(self) -> float | None:
        """Of the worst node; δ, adjacency, unit and observer stand beside it in `result`."""
        found: float | None = self.result["epsilon_proven"]
        return found

    @property
    def epsilon_claimed(self) -> float | None:
        found: float | None = self.result["epsilon_claimed"]
        return found

    def __repr__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)
