"""What an image network asks of the records."""

import pytest

from gossamer.errors import UserError
from gossamer.models.networks import image_shape


def test_the_shape_of_an_image_is_handed_back() -> None:
    assert image_shape("x", (3, 32, 30), smallest=30) == (3, 32, 30)


@pytest.mark.parametrize("shape", [(54,), (8, 8), (1, 8, 7), (1, 7, 8), (1, 1, 8, 8)])
def test_anything_else_is_refused_with_what_it_is_and_what_would_do(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError) as caught:
        image_shape("shallow-cnn", shape, smallest=8)
    message = str(caught.value)
    assert message.startswith(
        "model.kind = 'shallow-cnn' needs images (channels, height, width) of at least 8 × 8"
    )
    assert message.endswith(f"have shape {shape}; use 'softmax' or 'mlp'")
