"""The shape check every image network shares."""

from gossamer.errors import UserError


def image_shape(kind: str, input_shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    """(channels, height, width), or a UserError that says what the network needs."""
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise UserError(
            f"model.kind = '{kind}' needs images (channels, height, width) of at least "
            f"{smallest} × {smallest} pixels, and the records have shape {tuple(input_shape)}; "
            "use 'softmax' or 'mlp'"
        )
    channels, height, width = input_shape
    return channels, height, width
