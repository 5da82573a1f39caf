"""What is found on the training records before the first round: each a step that is paid for and on file."""

__all__ = ["base", "class_weights", "components", "share", "standardise", "steps"]
