"""What a run leaves: directory, checkpoints, certificate, pages, and what the terminal shows."""
