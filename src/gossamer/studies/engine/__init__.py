"""Where the runs of a study are carried out: in processes of this machine, or at the workers of a cluster."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["arrival", "job", "named"]
