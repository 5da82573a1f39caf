"""Fixed features: functions of one record and of public constants, so that no training record sees another."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["chain", "pipeline"]
