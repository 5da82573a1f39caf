"""Runs: from a configuration to a plan, trained models and a certificate."""
