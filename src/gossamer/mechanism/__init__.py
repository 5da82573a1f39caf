"""The private mean and its parts: the reader of records, lots, clips, noise."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "clip_steps",
    "clipping",
    "judged",
    "noise",
    "reader",
    "samplers",
    "sampling",
    "schedules",
    "summaries",
]
