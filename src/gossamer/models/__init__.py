"""The papers' networks as plain torch modules."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["cells", "centred", "check", "kinds", "lookup", "losses", "measures", "own", "table", "tasks"]
