"""The networks of [model]: a kind is a dataclass whose fields are its options and whose `make` is the network.

Pooling before ReLU gives the same function in half the time.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import nn

from gossamer.errors import UserError
from gossamer.models.layers import GlobalMax, GlobalMean, Residual, check_layers, conv_norm
from gossamer.options.plugins import run_file
from gossamer.options.registry import Registry
from gossamer.options.types import Count


class Model(Protocol):
    kind: ClassVar[str]

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network, initialised by torch's defaults from the caller's torch generator.

        input_shape: shape of one record without the batch axis; images are (channels, height, width).
        """
        ...


models: Registry[Model] = Registry("model")


def image_shape(kind: str, input_shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    """(channels, height, width), or a UserError that says what the network needs."""
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise UserError(
            f"model.kind = '{kind}' needs images (channels, height, width) of at least {smallest} × {smallest} pixels, "
            f"and the records have shape {tuple(input_shape)}; use 'softmax' or 'mlp'"
        )
    return input_shape[0], input_shape[1], input_shape[2]


@models.register("softmax")
class Softmax:
    """One linear layer: multinomial logistic regression under cross-entropy."""

    bias: Annotated[bool, "a constant for every class"] = True

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), outputs, bias=self.bias))


@models.register("linear")
class Linear:
    """⟨a, x⟩, one number whatever the classes, for the losses under [loss]; starts at 0."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _from_zero(input_shape, 1)


@models.register("one-vs-all")
class OneVsAll:
    """One linear classifier per class, from zero. The bias is a feature of the record (`data.bias`)."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _from_zero(input_shape, outputs)


@models.register("mlp")
class MLP:
    """Fully connected layers; with one hidden layer the 2-layer net of AdaD2P (the width is our choice)."""

    hidden: Annotated[list[Count], "widths of the hidden layers"] = field(default_factory=lambda: [128])
    activation: Annotated[Literal["relu", "tanh"], "after every hidden layer"] = "relu"

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        before = prod(input_shape)
        for width in self.hidden:
            layers += [nn.Linear(before, width), nn.ReLU() if self.activation == "relu" else nn.Tanh()]
            before = width
        return nn.Sequential(*layers, nn.Linear(before, outputs))


def _from_zero(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    layer = nn.Linear(prod(input_shape), outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)


@models.register("lookup")
class Lookup:
    """A number per place, for data.kind = "dirac"; gradients of different places are orthogonal."""

    rows: Annotated[int, Field(ge=2), "places of the table, 0 … rows − 1"]

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if input_shape != ():
            raise UserError(
                "model.kind = 'lookup' reads one place per record, as data.kind = 'dirac' has them, and the records "
                f"have shape {tuple(input_shape)}; use 'softmax' or 'mlp'"
            )
        return nn.Embedding(self.rows, outputs)


@models.register("shallow-cnn")
class ShallowCNN:
    """Two convolutions and two dense layers (Dyn-D2P on Fashion-MNIST; the paper leaves the widths open).

    Narrow by default: noise grows with the number of parameters, and one sample a round is little signal.
    """

    filters: Annotated[list[Count], Field(min_length=2, max_length=2), "channels of the two convolutions"] = field(
        default_factory=lambda: [8, 16]
    )
    hidden: Annotated[Count, "width of the dense layer"] = 32

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = image_shape("shallow-cnn", input_shape, smallest=4)
        first, second = self.filters
        return nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, outputs),
        )


@models.register("mnist-cnn")
class MnistCNN:
    """One convolution and two linear layers (dp-consensus, Appendix B).

    The paper gives no widths; the authors' public code has these (and Mish for ReLU, on 32×32 images).
    """

    filters: Annotated[Count, "channels of the convolution"] = 3
    kernel: Annotated[Count, "side of the convolution's window, in pixels"] = 5
    hidden: Annotated[Count, "width of the hidden layer"] = 64

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = image_shape("mnist-cnn", input_shape, smallest=self.kernel + 1)
        pooled = ((height - self.kernel + 1) // 2) * ((width - self.kernel + 1) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, self.filters, self.kernel),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(self.filters * pooled, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, outputs),
        )


@models.register("resnet9")
class ResNet9:
    """Eight convolutions and one linear layer, two residual blocks (dp-consensus on CIFAR-100).

    The authors' public code has a third block, between the last two poolings, and leaky ReLU.
    """

    width: Annotated[Count, "channels of the first stage; later ones have multiples of it"] = 64
    groups: Annotated[Count, "groups of channels that are normalised together"] = 16

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        channels, _, _ = image_shape("resnet9", input_shape, smallest=8)
        width, groups = self.width, self.groups

        def step(before: int, after: int, *, pool: bool = False) -> list[nn.Module]:
            # Pooling commutes with ReLU and leaves it a quarter of the work.
            pooling: list[nn.Module] = [nn.MaxPool2d(2)] if pool else []
            return [conv_norm(before, after, groups=groups), *pooling, nn.ReLU()]

        def block(size: int) -> Residual:
            return Residual(nn.Sequential(*step(size, size), *step(size, size)), outer_relu=False)

        return nn.Sequential(
            *step(channels, width),
            *step(width, 2 * width, pool=True),
            block(2 * width),
            *step(2 * width, 4 * width, pool=True),
            *step(4 * width, 8 * width, pool=True),
            block(8 * width),
            GlobalMax(),
            nn.Linear(8 * width, outputs),
        )


@models.register("resnet18")
class ResNet18:
    """He et al. 2016 in four stages of two basic blocks (AdaD2P and Dyn-D2P on CIFAR-10)."""

    width: Annotated[Count, "channels of the first stage; later ones have multiples of it"] = 64
    groups: Annotated[Count, "groups of channels that are normalised together"] = 16

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        channels, _, _ = image_shape("resnet18", input_shape, smallest=8)
        width, groups = self.width, self.groups

        def block(before: int, after: int, stride: int) -> Residual:
            body = nn.Sequential(
                conv_norm(before, after, groups=groups, stride=stride),
                nn.ReLU(),
                conv_norm(after, after, groups=groups),
            )
            same = stride == 1 and before == after
            shortcut = None if same else conv_norm(before, after, groups=groups, stride=stride, kernel=1)
            return Residual(body, shortcut, outer_relu=True)

        layers: list[nn.Module] = [conv_norm(channels, width, groups=groups), nn.ReLU()]
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [block(before, after, stride=1 if stage == 0 else 2), block(after, after, stride=1)]
            before = after
        return nn.Sequential(*layers, GlobalMean(), nn.Linear(before, outputs))


@models.register("minilm")
@dataclass(frozen=True, kw_only=True)
class TextEncoder:
    """MiniLM with its public weights and a linear head from zero; records are tokens, see `gossamer.tokens`.

    With `[lora] train = ["head"]` all of the encoder is frozen but for its adapters.
    """

    trunk: Annotated[Count | None, "records are states after so many layers, of the step minilm with this trunk"] = None

    weights: ClassVar[str] = "minilm-l6"

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from gossamer.data.features.minilm import FEATURES, encoder

        if len(input_shape) != (1 if self.trunk is None else 2):
            needed = "tokens (gossamer.tokens)" if self.trunk is None else f"the step minilm with trunk = {self.trunk}"
            raise UserError(f"model.kind = 'minilm' has records of shape {tuple(input_shape)}; it needs {needed}.")
        head = nn.Linear(FEATURES, outputs)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return nn.Sequential(OrderedDict(encoder=encoder(input_shape[0], first=self.trunk or 0), head=head))


def build(kind: str, *, input_shape: tuple[int, ...], outputs: int, **options: Any) -> nn.Module:
    """The network of that kind with these options of the table [model]."""
    return models.parse({"kind": kind, **options}).make(tuple(input_shape), outputs)


_LOADED_AS = "gossamer_own_module"  # what a file is called in sys.modules: pickles and dataclasses look there


@models.register("own")
@dataclass(frozen=True, kw_only=True)  # by hand for type checkers: code makes or replaces it
class Own:
    """A torch module of your own: gossamer.run(..., module=net), or model = "net.py:make"."""

    path: Annotated[str | None, "FILE:NAME, a module or its maker; the file is run; or from Python"] = None

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if self.path is None:
            raise UserError(
                "model.kind = 'own' needs the module itself; use gossamer.run(..., module=net) from Python, or "
                'model = "net.py:make".'
            )
        return load_module(self.path, seed=torch.initial_seed(), key="model.path =")

    def withheld(self) -> Own:
        """The same, but its code is not run: for a configuration that somebody else may have written."""
        return self if self.path is None else Withheld(path=self.path)


class Withheld(Own):
    """Named by a run directory: opening one must not run what it names."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        raise UserError(
            f"the run's model is code of yours, {self.path}, and code that a run directory names is not run unless you "
            f"say so; add --set model.path={self.path}, or module=… from Python."
        )


def load_module(path: str, *, seed: int = 0, key: str = "--module") -> nn.Module:
    """The module that "file.py:name" names: an instance, or what a class or function without arguments makes.

    The file runs under `seed`, so that a network it makes begins with the same weights every time. `key` is where the
    words stand, for a message that names it. Whatever goes wrong in the user's file is one sentence.
    """
    file, _, name = path.rpartition(":")
    where = f"{key} {path}"
    if not file or not name:
        raise UserError(f"{where} must be FILE:NAME, for example net.py:Net.")
    if not Path(file).is_file():
        raise UserError(f"{where}: there is no file {file}; name a Python file that makes the module.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        names = _run_file(Path(file), where)
        if name not in names:
            known = ", ".join(_candidates(names)) or "nothing that is a module or makes one"
            raise UserError(f"{where}: {file} has no {name}; it has {known}.")
        module = names[name]
        if not isinstance(module, torch.nn.Module) and callable(module):
            with _explained(where, "calling it without arguments stops with"):
                module = module()
    if not isinstance(module, torch.nn.Module):
        raise UserError(
            f"{where} is of type {type(module).__name__}; it must be a torch.nn.Module, or a class or function without "
            "arguments that makes one."
        )
    check_layers(module)
    return module


def _run_file(path: Path, where: str) -> dict[str, Any]:
    """The names that a Python file defines; imports find the files next to it, as if Python ran it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with _explained(where, f"{path} stops with"):
            return vars(run_file(path, _LOADED_AS))
    finally:
        sys.path.remove(folder)


def _candidates(names: dict[str, Any]) -> list[str]:
    """Names of the file's own that could be meant."""
    return [
        name
        for name, value in names.items()
        if isinstance(value, nn.Module)
        or (callable(value) and getattr(value, "__module__", None) == _LOADED_AS and not name.startswith("_"))
    ]


@contextmanager
def _explained(where: str, what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or "no message"
        raise UserError(f"{where}: {what} {type(error).__name__}: {reason}") from error
