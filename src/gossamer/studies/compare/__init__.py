"""Runs side by side: a table and a plot."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["command", "grid", "plot", "table"]
