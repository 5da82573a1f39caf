"""DP-dKM: the Krasnosel'skiĭ–Mann framework."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["algorithm", "operators", "proximal"]
