"""From a configuration to a run: every command and the Python API enter here."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "api",
    "assemble",
    "begin",
    "budget",
    "certificates",
    "certify",
    "check_data",
    "data",
    "evaluate",
    "export",
    "load",
    "models",
    "network",
    "outline",
    "predict",
    "request",
    "resume",
    "train",
]
