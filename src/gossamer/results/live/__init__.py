"""`gossamer watch`: one page about a run that goes on, or has ended, served to this machine alone."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["server"]
