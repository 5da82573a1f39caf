"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from __future__ import annotations

from gossamer.algorithms import rules

__all__ = ["rules"]
