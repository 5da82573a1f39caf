"""What happened (events, ledger) and what it costs (proven, claimed, calibrate).

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

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "Accountant",
    "Figure",
    "alternatives",
    "budget",
    "calibrate",
    "chain",
    "claimed",
    "composer",
    "gaussian",
    "gaussian_noise",
    "laplace_noise",
    "ledger",
    "network",
    "noise_for",
    "observers",
    "pairs",
    "profiles",
    "proven",
    "recompute",
    "releases",
    "runs",
    "secrets",
]

_OF_THE_ACCOUNTANT = ("Accountant", "Figure", "gaussian_noise", "laplace_noise", "noise_for")


def __getattr__(name: str) -> Any:
    """Loaded at first use: composing needs scipy, and many who come by here do not."""
    if name in _OF_THE_ACCOUNTANT:
        return getattr(import_module("gossamer.accounting.accountant"), name)
    raise AttributeError(f"module 'gossamer.accounting' has no attribute {name!r}")
