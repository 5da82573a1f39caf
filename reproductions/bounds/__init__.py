"""The papers' utility bounds as functions: what is unknown of a problem is an argument, never a guess."""
