"""The papers' tables, run again."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["book", "command"]
