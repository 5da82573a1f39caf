"""Runs side by side, as one page."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["made", "page"]
