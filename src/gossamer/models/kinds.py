"""From a kind's name and options to a network. A new one is one function and one line here.

Nothing here loads torch before `build` is called, so that a configuration can be checked quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossamer.errors import UserError
from gossamer.models import cnn, linear, lookup, resnet
from gossamer.options.kinds import Option, check_options, options_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Kind:
    """A registered network."""

    name: str
    make: Callable[..., "nn.Module"]

    @property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only parameters of the maker."""
        return options_of(self.make)


_REGISTRY = {
    kind.name: kind
    for kind in (
        Kind("softmax", linear.softmax),
        Kind("linear", linear.linear),
        Kind("mlp", linear.mlp),
        Kind("shallow-cnn", cnn.shallow_cnn),
        Kind("mnist-cnn", cnn.mnist_cnn),
        Kind("resnet9", resnet.resnet9),
        Kind("resnet18", resnet.resnet18),
        Kind("one-vs-all", linear.one_vs_all),
        Kind("lookup", lookup.lookup),
    )
}


def kinds() -> list[Kind]:
    """Every registered network with its options."""
    return list(_REGISTRY.values())


def build(kind: str, *, input_shape: tuple[int, ...], outputs: int, **options: Any) -> "nn.Module":
    """The network of that kind, initialised by torch's defaults from the caller's torch generator.

    input_shape: shape of one record without the batch axis; images are (channels, height, width).
    """
    if kind not in _REGISTRY:
        raise UserError(f"model.kind = '{kind}' is unknown; use one of {', '.join(_REGISTRY)}")
    check_options("model", kind, _REGISTRY[kind].make, options)
    return _REGISTRY[kind].make(tuple(input_shape), outputs, **options)
