"""Many runs: compare, reproduce, tune, audit. All of them enter by `run`."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["audit", "compare", "reproduce", "tune"]
