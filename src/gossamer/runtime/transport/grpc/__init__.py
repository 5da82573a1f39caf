"""Parcels between the sites of a consortium: gRPC over mutual TLS, pinned by the roster (decision 0048)."""

import os

# The modules that others may import; the rest is private to this folder.
__all__ = ["identity", "limits", "links", "relay"]

# Before grpc is imported: its C core writes lines of its own to the terminal for every port scan. What concerns an
# operator is said by `gossamer.peers` in the log; GRPC_VERBOSITY=debug shows the rest.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
