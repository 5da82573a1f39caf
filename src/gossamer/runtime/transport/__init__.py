"""What carries bytes between ranks."""
