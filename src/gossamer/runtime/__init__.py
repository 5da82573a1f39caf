"""Who carries a run: the loop of rounds, groups of processes, exchanges, the wire format, transports."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "blocks",
    "children",
    "exchange",
    "forms",
    "group",
    "launch",
    "loop",
    "peers",
    "simulator",
    "transport",
    "wire",
]
