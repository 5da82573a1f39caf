"""The hot loops: clipped sums by book-keeping, the noise stream, tiled mixing."""

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "centred_sum",
    "clipped_sum",
    "discrete",
    "footprint",
    "mixing",
    "noise",
    "oracle",
    "persons",
    "pooling",
    "stack",
]
