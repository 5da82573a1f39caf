"""Layers of the networks, and checks of a user's module."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from math import gcd, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from gossamer.errors import UserError, short


def conv_norm(before: int, after: int, *, groups: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """Convolution without bias (the norm has one) and GroupNorm."""
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(gcd(groups, after), after),
    )


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)), or body(x) + shortcut(x) without the outer ReLU."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, *, outer_relu: bool) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut if shortcut is not None else nn.Identity()
        self.outer_relu = outer_relu

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.shortcut(x)
        return torch.relu(total) if self.outer_relu else total


class GlobalMean(nn.Module):
    """Mean over all pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class GlobalMax(nn.Module):
    """Maximum over all pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(dim=(2, 3))


_TINY = 1e-12


def centre_records(x: Tensor, centre: Tensor) -> Tensor:
    """(x − c) / ‖x − c‖ over the last axis: on the sphere again, so that all of the clip goes to what differs."""
    moved = x - centre
    return moved.div_(torch.linalg.vector_norm(moved, dim=-1, keepdim=True).clamp_min_(_TINY))


class Centred(nn.Module):
    """head((x − c) / ‖x − c‖). The parameter c comes first, of the size of a record."""

    def __init__(self, head: nn.Module, size: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(size))
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(centre_records(x.flatten(1), self.centre))
        return out


def split_records(module: nn.Module, layout: Sequence[Any] | None) -> nn.Module:
    """A copy of the module that takes packed records of this layout, see `data.packing`; itself if there is none."""
    if layout is None:
        return module
    module = copy.deepcopy(module)
    module.register_forward_pre_hook(partial(_arguments, layout), with_kwargs=True)
    return module


def _arguments(layout: Sequence[Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Parts of packed records x (N, p), by place or by name. A call with several arguments is left alone."""
    if len(args) != 1 or kwargs:
        return args, kwargs
    (x,), first, parts = args, 0, []
    for part in layout:
        end = first + prod(part.shape)
        values = x[:, first:end].reshape(-1, *part.shape)
        types = {"float": lambda v: v, "int": lambda v: v.long(), "bool": lambda v: v > 0.5}
        typed = types[part.type](values)
        parts.append((part.name, typed))
        first = end
    by_place = tuple(values for name, values in parts if not isinstance(name, str))
    return by_place, {name: values for name, values in parts if isinstance(name, str)}


def check_is_module(module: Any) -> None:
    """UserError where it is none."""
    if isinstance(module, type) or not isinstance(module, nn.Module):
        name = getattr(module, "__name__", None) or short(module)
        kind = "a class" if isinstance(module, type) else f"of type {type(module).__name__}"
        raise UserError(f"module = {name} is {kind}; give an object, a torch.nn.Module that is already made.")


def check_module(module: Any) -> None:
    """UserError where a user's own module cannot be trained at all."""
    check_is_module(module)
    named = list(module.named_parameters())
    if not any(one.requires_grad for _, one in named):
        raise UserError(f"module ({type(module).__name__}) has no parameter to train; give one with some.")
    check_layers(module)
    for name, one in named:
        if one.is_meta:
            raise UserError(f"module: {name} has no values yet (the device meta); give a module with them.")
        if not torch.isfinite(one).all():
            raise UserError(f"module: {name} has values that are NaN or infinite; start from finite ones.")


def check_layers(module: nn.Module) -> None:
    """UserError naming the first layer whose code or parameters are of a kind that is not trained here."""
    for name, layer in module.named_modules():
        problem = _problem(layer)
        if problem is not None:
            raise UserError(f"model: {_named(name, layer)} {problem}.")


def _named(name: str, layer: nn.Module) -> str:
    return f"{f'layer {name!r}' if name else 'the module itself'} ({type(layer).__name__})"


def _problem(layer: nn.Module) -> str | None:
    if isinstance(layer, torch.jit.ScriptModule):
        return "is scripted, so its operations cannot be followed; use the module from before torch.jit"
    if type(layer).__name__ == "OptimizedModule" and hasattr(layer, "_orig_mod"):
        return "is compiled, so its operations cannot be followed; use the module from before torch.compile"
    for name, parameter in layer.named_parameters(recurse=False):
        if isinstance(parameter, UninitializedParameter):
            return f"has no values for its parameter {name} yet; call the module once on made-up records"
        if parameter.requires_grad and parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            return f"has its parameter {name} in {kind}, and training is in float32; use module.float()"
    return None


def check_outputs(module: nn.Module, record: torch.Tensor, classes: int) -> None:
    """Of a user's own module under cross-entropy: one number for each class."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            shape = tuple(module(record).shape)
        except Exception:  # a blank record may be one that it fails on, as with an inverse
            return
    if shape != (1, classes):
        raise UserError(f"module gives shape {shape} for one record; it must be (1, {classes} classes).")


def check_no_mixing(module: nn.Module) -> None:
    """UserError naming the first layer that mixes the records of a batch or remembers them."""
    for name, layer in module.named_modules():
        # SyncBatchNorm and the lazy kinds are BatchNorms too.
        batch = isinstance(layer, _BatchNorm)
        running = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if batch or running:
            does = "mixes the records of a batch" if batch else "keeps running statistics of the records"
            raise UserError(f"model: {_named(name, layer)} {does}: nothing bounds a record's part; use GroupNorm")


def has_adapters(names: Iterable[str]) -> bool:
    """Are parameters of these names those of adapters?"""
    return any(".lora_" in f".{name}" for name in names)


def idle_parameters(module: nn.Module, record: Tensor) -> list[str]:
    """Names of adapters' parameters that the outputs for a record do not depend on, whatever their values."""
    own = {name: p for name, p in module.named_parameters() if p.requires_grad and has_adapters([name])}
    if not own:
        return []
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            gradients = torch.autograd.grad(module(record).sum(), [*own.values()], allow_unused=True)
    except Exception:  # a blank record may be one that the module fails on
        return []
    return [name for name, gradient in zip(own, gradients, strict=True) if gradient is None]
