"""Attacks on what a configuration would release."""
