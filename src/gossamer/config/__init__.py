"""The configuration of a run: schema, layers, presets, checks and recipes."""
