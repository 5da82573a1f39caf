"""Two threads for what runs side by side."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
