"""One site of a consortium: its parcels, its share of the mass, its journal. One node, no operator over all of them."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["base", "contacts", "exchange", "group", "journal", "released", "rules"]
