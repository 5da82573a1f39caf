"""What an algorithm sees: two capabilities, a schedule, and nothing else.

Every tensor carries the nodes hosted here on its leading axis. Algorithms never see a record, so whatever they compute
is post-processing of what `grad` released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

# The private gradient of every hosted node at its own point: (m, d) → (m, d).
Grad = Callable[["Tensor"], "Tensor"]
Mix = Callable[..., Any]  # one exchange with the neighbours; as many tensors back as went in
Schedule = Callable[[int], float]  # round → value


@dataclass(frozen=True)
class Exponential:
    """start · decay^(t / rounds) / (t + 1)^power."""

    start: float
    decay: float = 1.0
    rounds: int = 1
    power: float = 0.0

    def __call__(self, t: int) -> float:
        return float(self.start * self.decay ** (t / self.rounds) / (t + 1) ** self.power)


class Algorithm(Protocol):
    """One file each. `State` is a NamedTuple of tensors, so that checkpoints and processes can carry it."""

    @property
    def weights(self) -> str: ...  # what mixing it needs: "column", "doubly" or "adjacency"

    @property
    def draws(self) -> int: ...  # how often a round calls grad

    def init(self, x0: Tensor) -> Any: ...

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any: ...

    def model(self, s: Any) -> Tensor: ...
