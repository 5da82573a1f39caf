"""The private mean and its parts: the reader of records, lots, clips, noise."""
