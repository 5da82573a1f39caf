"""The loop of rounds, groups of processes, and exchanges."""
