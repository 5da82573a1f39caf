"""Layers under which records depend on each other are named."""

import pytest
from torch import nn

from gossamer.errors import UserError
from gossamer.models.layers import check_no_mixing


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm2d(),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.InstanceNorm2d(4, track_running_stats=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_mixing_layers_are_named(layer: nn.Module) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(nn.ReLU(), layer))
    with pytest.raises(UserError, match=rf"layer '1\.1' \({type(layer).__name__}\)") as caught:
        check_no_mixing(network)
    assert "GroupNorm" in str(caught.value)
    with pytest.raises(UserError, match="the model itself"):
        check_no_mixing(layer)


def test_norms_of_one_record_are_allowed() -> None:
    check_no_mixing(nn.Sequential(nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(4)))
