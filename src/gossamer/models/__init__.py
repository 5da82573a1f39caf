"""The papers' networks as plain torch modules."""
