"""Without-replacement learning with one shared model."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["algorithm", "lemma4", "token"]
