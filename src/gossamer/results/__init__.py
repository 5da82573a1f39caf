"""Results of a run: directory, checkpoints, certificate, pages, and the terminal's output."""
