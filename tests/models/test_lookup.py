"""A table of numbers: a record reads one place."""

import pytest
import torch

from gossamer.errors import UserError
from gossamer.models.networks import build


def test_a_lookup_has_orthogonal_gradients() -> None:
    table = build("lookup", input_shape=(), outputs=1, rows=5)
    places = torch.tensor([3, 0])
    assert torch.equal(table(places)[:, 0], table.weight[places, 0])
    gradients = [torch.autograd.grad(table(places)[i].sum(), table.weight)[0][:, 0] for i in range(2)]
    assert torch.equal(torch.stack(gradients), torch.eye(5)[places])
    for shape, rows, named in (((1, 8, 8), 5, "dirac"), ((), 1, "model.rows")):
        with pytest.raises(UserError, match=named):
            build("lookup", input_shape=shape, outputs=1, rows=rows)
