"""What a paper claims of a run: its figure, where it stands, and what is amiss with it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A paper's figure: ε (None if the formula gives none), where it stands, and what is amiss with it.

    Each flag is one sentence: a condition that is violated, or a constant that is ours and not the paper's.
    """

    epsilon: float | None
    reference: str
    flags: tuple[str, ...] = ()
    delta: float | None = None
