"""What carries bytes between ranks."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["base", "meeting", "memory", "secret", "torch"]
