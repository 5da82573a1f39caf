"""Attacks on what a configuration would release."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["api", "command", "judge", "terminal"]
