"""Trained models of a run: description, weights, predictions, export with a card."""
