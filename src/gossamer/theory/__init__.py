"""The papers' utility bounds as functions: what is unknown of a problem is an argument, never a guess."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["consensus", "km", "push_sum", "without_replacement"]
