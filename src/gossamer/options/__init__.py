"""Declaration, checks and listing of kinds and their options."""
