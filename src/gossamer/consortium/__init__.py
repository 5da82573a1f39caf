"""A consortium of sites: who belongs to it, what they train together, and what each of them signs at the end.

Nothing here carries a message or reads a record: that is `runtime` and `run`; `peer` puts them together.
"""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "authority",
    "certificates",
    "commands",
    "coordinator",
    "membership",
    "peer",
    "peer_commands",
    "ready",
    "roster",
    "site",
    "study",
]
