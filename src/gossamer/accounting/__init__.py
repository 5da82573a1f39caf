"""Events and ledgers, and what they cost: proven, claimed, calibrated.

By itself, without the rest of the library:

>>> from gossamer.accounting import Accountant, gaussian_noise, noise_for
>>> sigma = noise_for(2.0, delta=1e-6, adjacency="replace-one", steps=100)
>>> accountant = Accountant(delta=1e-6, adjacency="replace-one").add(gaussian_noise(sigma), times=100)
>>> accountant.epsilon()  # doctest: +ELLIPSIS
ε ≤ 2 (δ = 1e-06, replace-one, unit: one record of one node; observer: everyone: ...; by closed form: ...)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.accounting.accountant import Accountant, Figure, gaussian_noise, laplace_noise, noise_for

__all__ = ["Accountant", "Figure", "gaussian_noise", "laplace_noise", "noise_for"]


def __getattr__(name: str) -> Any:
    """Load the accountant at first use: composing needs scipy, and many importers of this package do not."""
    if name in __all__:
        return getattr(import_module("gossamer.accounting.accountant"), name)
    raise AttributeError(f"module 'gossamer.accounting' has no attribute {name!r}")
