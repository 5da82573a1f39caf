"""Training between organisations: authority, rosters, studies, a site's run, its exchange with others, gRPC, relay."""

import os

# Before grpc is imported: its C core writes a line to the terminal for every port scan. GRPC_VERBOSITY=debug shows all.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
