"""What happened (events, ledger) and what it costs (proven, claimed, calibrate); this file stays light."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "budget",
    "by_observer",
    "calibrate",
    "chain",
    "claimed",
    "composer",
    "gaussian",
    "grouping",
    "ledger",
    "network",
    "network_epsilon",
    "noise_comparison",
    "observers",
    "pairs",
    "profiles",
    "proven",
    "recompute",
    "releases",
    "secrets",
    "spending",
    "tradeoff",
]
