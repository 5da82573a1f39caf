"""From a kind's name and options to a network. A new one is one function and one line here.

Nothing here loads torch before `build` is called, so that a configuration can be checked quickly.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from gossamer.errors import UserError
from gossamer.models import cnn, linear, resnet

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Option:
    """One setting of a kind; `type` is a Python annotation, `default` counts only if not `required`."""

    name: str
    type: Any
    default: Any
    required: bool


@dataclass(frozen=True)
class Kind:
    """A registered network."""

    name: str
    make: Callable[..., "nn.Module"]

    @property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only parameters of the maker."""
        return tuple(
            Option(p.name, p.annotation, p.default, required=p.default is p.empty)
            for p in inspect.signature(self.make).parameters.values()
            if p.kind is p.KEYWORD_ONLY
        )


_REGISTRY = {
    kind.name: kind
    for kind in (
        Kind("softmax", linear.softmax),
        Kind("mlp", linear.mlp),
        Kind("shallow-cnn", cnn.shallow_cnn),
        Kind("mnist-cnn", cnn.mnist_cnn),
        Kind("resnet9", resnet.resnet9),
        Kind("resnet18", resnet.resnet18),
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
    _check_options(_REGISTRY[kind], options)
    return _REGISTRY[kind].make(tuple(input_shape), outputs, **options)


def _check_options(kind: Kind, options: Mapping[str, Any]) -> None:
    known = {option.name: option for option in kind.options}
    for name, value in options.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no options"
            raise UserError(f"model.{name} is not an option of kind '{kind.name}'; {takes}")
        try:
            TypeAdapter(known[name].type).validate_python(value, strict=True)
        except ValidationError:
            annotation = known[name].type
            readable = annotation.__name__ if isinstance(annotation, type) else str(annotation)
            raise UserError(
                f"model.{name} = {value!r} does not fit; kind '{kind.name}' takes {readable}"
            ) from None
