"""What a run leaves: directory, checkpoints, certificate, pages, and what the terminal shows."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "audit_page",
    "certificate",
    "certificate_page",
    "checkpoint",
    "console",
    "epsilon_plot",
    "files",
    "headline",
    "line_plot",
    "metrics",
    "noise_table",
    "notebook",
    "relation",
    "report",
    "rundir",
    "runlock",
    "seals",
    "stated",
    "terminal",
    "track",
    "trained",
    "verify",
]
