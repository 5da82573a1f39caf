"""What a run has trained, ready to be used: its models, what they take and give, and a card that goes with them."""

# The modules that others may import; the rest is private to this folder.
__all__ = ["card", "convert", "description", "models", "uses", "weights"]
