"""Who carries a run: the loop of rounds, groups of processes, exchanges, the wire format, transports."""
