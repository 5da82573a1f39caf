"""A package outside of ours, as pip would install it: modules, and a dist-info folder with its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ALGORITHM = '''
"""x ← W (x − η p g(x)): adapt then combine."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field
from torch import Tensor

from gossamer.algorithms import register
from gossamer.algorithms.base import Grad, Mix, Schedule


class State(NamedTuple):
    x: Tensor


@register("diffusion")
@dataclass(frozen=True, kw_only=True)
class Diffusion:
    """Adapt, then combine."""

    lr: Schedule
    pace: Annotated[float, Field(gt=0, le=1, description="share of a step")] = 1.0
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        return State(mix(s.x - self.pace * self.lr(t) * grad(s.x)))

    def model(self, s: State) -> Tensor:
        return s.x
'''


def install(into: Path, package: str, modules: Mapping[str, str], entries: Mapping[str, str]) -> None:
    """Modules by name, and `gossamer.plugins` entries; `into` must be on the path of whoever is to find them."""
    for name, code in modules.items():
        (into / f"{name}.py").write_text(code, encoding="utf-8")
    info = into / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n", encoding="utf-8")
    lines = ["[gossamer.plugins]", *(f"{name} = {module}" for name, module in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
