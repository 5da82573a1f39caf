"""Sums over all records of a node that are released once, with noise, before the first round."""

__all__ = ["base", "columns", "labels", "second_moment"]
