"""A network behind the subtraction of a mean."""

from __future__ import annotations

import torch
from torch import nn

from gossamer.models.layers import Centred, centre_records


def test_records_lie_on_the_sphere_around_the_centre() -> None:
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    centre = torch.tensor([[[0.1, 0.2, 0.3]], [[1.0, 0.0, 0.0]]])
    before = x.clone()
    found = centre_records(x, centre)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2, 5))
    moved = x - centre
    torch.testing.assert_close(found * moved.norm(dim=-1, keepdim=True), moved)
    assert torch.equal(x, before)


def test_a_record_in_the_centre_itself_is_0_and_not_nan() -> None:
    x = torch.ones(1, 3)
    assert centre_records(x, torch.ones(3)).tolist() == [[0.0, 0.0, 0.0]]


def test_the_centre_is_the_first_parameter_and_starts_at_0() -> None:
    """The sums that `CentredSum` makes put the centre first."""
    network = Centred(nn.Linear(4, 2), 4)
    names = [name for name, _ in network.named_parameters()]
    assert names == ["centre", "head.weight", "head.bias"]
    assert not network.centre.any()
    x = torch.randn(3, 2, 2)
    flat = x.flatten(1)
    torch.testing.assert_close(network(x), network.head(flat / flat.norm(dim=1, keepdim=True)))
