"""Where records come from (checked), data sets, and their partition over nodes."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "arrow",
    "by_node",
    "check",
    "dataset",
    "digest",
    "features",
    "files",
    "inputs",
    "kept_out",
    "labels",
    "limits",
    "load",
    "mapped",
    "memory",
    "own",
    "partition",
    "persons",
    "sent",
    "source",
    "standard",
    "standardise",
    "synthetic",
]
