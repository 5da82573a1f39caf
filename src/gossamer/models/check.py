"""Refuse layers under which one record's gradient depends on other records."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from gossamer.errors import UserError


def check_no_mixing(module: nn.Module) -> None:
    """UserError naming the first layer that mixes the records of a batch or remembers them."""
    for name, layer in module.named_modules():
        # SyncBatchNorm and the lazy kinds are BatchNorms too.
        batch = isinstance(layer, _BatchNorm)
        running = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if batch or running:
            does = "mixes the records of a batch" if batch else "keeps running statistics of the records"
            where = f"layer '{name}'" if name else "the model itself"
            raise UserError(
                f"model: {where} ({type(layer).__name__}) {does}, so clipping one record does not bound its "
                "influence; use GroupNorm in its place"
            )
