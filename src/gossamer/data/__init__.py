"""Where records come from (checked), data sets, and their partition over nodes."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "by_node",
    "dataset",
    "digest",
    "features",
    "files",
    "inputs",
    "limits",
    "load",
    "memory",
    "own",
    "partition",
    "persons",
    "sent",
    "source",
    "synthetic",
]
