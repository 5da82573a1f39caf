"""How a kind and its options are declared, checked and listed."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "nearest",
    "plugins",
    "registry",
    "sentences",
    "stage",
    "toml",
    "types",
    "words",
]
