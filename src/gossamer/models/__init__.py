"""Networks, losses, tasks and measures."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["layers", "losses", "measures", "networks", "tasks"]
