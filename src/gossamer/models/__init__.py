"""Networks, losses, tasks and measures."""
