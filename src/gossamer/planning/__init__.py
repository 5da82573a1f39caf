"""From a configuration to what its run would cost; no record is read."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["network", "notes", "observers", "outline", "pool", "privacy", "units"]
