"""An operator of one's own: sparse *and* non-negative regression by Davis and Yin's three-operator splitting.

    python examples/own_operator.py

min f(x) + r(x) + [x ≥ 0], with the penalty's map, a projection and one gradient. T is averaged for γ < 2/L (Davis and
Yin 2017). It never sees a record: privacy, mixing, accounting, runtimes and reports come with `grad` and `mix`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import gossamer
from gossamer.methods.km.operators import OPERATORS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DavisYin:
    """T x = x − u + max(2u − x − γ∇f(u), 0), u = prox_{γr}(x)."""

    step: float
    penalty: Any
    asks: ClassVar[str] = "gradient"

    def __call__(self, x: Tensor, grad: Any) -> Tensor:
        u = self.penalty(x, self.step)
        return x - u + (2 * u - x - self.step * grad(u)).clamp_min(0)

    def solution(self, x: Tensor) -> Tensor:
        return self.penalty(x, self.step).clamp_min(0)

    def largest_step(self, smoothness: float) -> float:
        return 2 / smoothness


def main() -> Any:
    OPERATORS["davis-yin"] = DavisYin
    return gossamer.run("dp-dkm/lasso", {"algorithm.operator": "davis-yin", "privacy.epsilon": 2.0})


if __name__ == "__main__":
    result = main().result
    print(f"RMSE to the truth {result['truth_rmse_mean']:.3g} at a proven ε of {result['epsilon_proven']:.3g}")
