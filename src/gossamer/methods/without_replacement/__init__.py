"""Without-replacement learning with one shared model."""
