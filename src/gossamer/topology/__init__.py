"""Graphs, mixing weights, time-varying schedules and their spectral figures.

>>> from gossamer.topology.kinds import build
>>> ring = build("ring", nodes=6, weights="doubly", seed=0)
>>> ring.edges(0)[:2].tolist()  # (sender, receiver) of round 0
[[0, 1], [0, 5]]
>>> ring.weights(0).toarray().sum(axis=0).round(6).tolist()
[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
>>> ring.figures()["diameter"]
3
"""
