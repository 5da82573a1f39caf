"""Runs side by side, as one page."""
