"""Graphs, mixing weights, time-varying schedules and their spectral figures."""
