"""Data sets: sources, tables, features, and their partition over nodes."""
