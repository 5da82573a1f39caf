"""Graphs, mixing weights, time-varying schedules and their spectral figures."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["exact", "filter", "graph", "kinds", "makers", "schedule", "table"]
