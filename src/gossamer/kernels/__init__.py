"""The hot loops: clipped sums by book-keeping, the noise stream, tiled mixing."""
