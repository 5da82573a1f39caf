"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from gossamer.methods.base import Method, method_of

__all__ = ["Method", "method_of"]
