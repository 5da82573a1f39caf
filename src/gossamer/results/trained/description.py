"""`model.json`: the inputs and outputs of a run's models, and how to build their network.

It holds public things only. The file may be anyone's: it is checked, and no code is named in it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from gossamer.data.inputs import Inputs
from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.models.layers import Centred, split_records
from gossamer.models.lora import LoRA
from gossamer.models.losses import MultiLabel, Name, Task, task_of
from gossamer.models.networks import models
from gossamer.options.registry import Table
from gossamer.results.rundir import read_bytes

FORMAT = 1
BROUGHT = ("own", "python")  # kinds of networks that are the user's code, which no run directory holds
_MOST_BYTES, _MOST = 64 << 20, 1_000_000  # of the file, and of nodes or numbers along an axis
_MOST_OPTIONS = 10_000  # characters: a network of thousands of layers takes minutes to build

Label = bool | int | float | str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    run: str  # its name for itself
    nodes: int
    task: Name
    classes: int | None
    labels: tuple[Label, ...]  # names of the classes, or labels, in the outputs' order; empty: 0, 1, …
    inputs: Inputs
    input_shape: tuple[int, ...]  # of a record after its steps: what the network takes
    outputs: int
    probabilities: Literal["softmax", "sigmoid"] | None  # what makes them of the outputs
    model: dict[str, Any]  # kind and options
    own_module: bool  # the user's own code, which is not kept
    centre: bool  # is a mean, the first parameter, subtracted from every record?
    parameters: tuple[Parameter, ...]
    mean: Literal["exp"] | None = None  # what makes a regression's prediction of the output; None: it is
    lora: Annotated[LoRA, Table()] | None = None  # adapters on the network, where asked for
    level: float | None = None  # of the quantile that a regression predicts
    format: int = FORMAT

    @property
    def several(self) -> int | None:
        """How many labels of yes or no a record has, where it has several."""
        return self.outputs if self.task == MultiLabel.name else None

    @property
    def prediction(self) -> Task:
        """What the outputs mean."""
        return task_of(self.classes, self.several, self.probabilities or self.mean, self.level)

    @property
    def names(self) -> list[Label]:
        """The classes, or labels, as predictions name them."""
        numbers = self.classes or self.several or 0
        named: list[Label] = list(self.labels or range(numbers))
        # A module of one's own may have outputs that no record is labelled by.
        return named + [f"output {i}" for i in range(len(named), self.outputs if self.classes else 0)]

    def text(self) -> str:
        return json.dumps(_FORM.dump_python(self, mode="json"), indent=2, ensure_ascii=False) + "\n"

    def network(self, own: nn.Module | None = None) -> nn.Module:
        """With any weights; `own`: the user's module, where the run was of one."""
        kind = self.model["kind"]
        if own is None and (self.own_module or kind in BROUGHT):
            remedy = "hand it over: gossamer.load(RUN, module=net), or --module FILE:NAME"
            raise UserError(f"the run trained a module of the user's own, and holds no code; {remedy}.")
        if own is not None:
            network = own if isinstance(own, Centred) else self._centred(self._adapted(own))
            self.check_fits(network, "the module")
            return network
        with torch.random.fork_rng(devices=[]):
            try:
                with torch.device("meta"):  # takes no memory for any size that a file names
                    self.check_fits(self._built(), f"model.kind = {kind!r}")
                return self._built()
            except (RuntimeError, TypeError, OverflowError) as error:
                reason = type(error).__name__
                raise UserError(f"model.kind = {kind!r} cannot be built as described ({reason}).") from None

    def _built(self) -> nn.Module:
        network = models.parse(self.model).make(self.input_shape, self.classes or self.several or 1)
        return self._centred(self._adapted(network))

    def _adapted(self, network: nn.Module) -> nn.Module:
        network = network if self.lora is None else self.lora.adapt(network, seed=0)
        return split_records(network, self.inputs.parts)

    def _centred(self, network: nn.Module) -> nn.Module:
        return Centred(network, math.prod(self.input_shape)) if self.centre else network

    def check_fits(self, module: nn.Module, what: str) -> None:
        """Names and shapes of the trained parameters, one by one."""
        there = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        for parameter in self.parameters:
            name, shape = parameter.name, there.get(parameter.name)
            if shape is None:
                others = _some(list(there))
                raise UserError(f"{what} has no {name!r}, which the run trained; it has {others}.")
            if shape != parameter.shape:
                trained = f"the run trained one of shape {parameter.shape}"
                raise UserError(f"{what} has a parameter {name!r} of shape {shape}; {trained}.")
        known = {parameter.name for parameter in self.parameters}
        strange = [name for name in ParameterStack(module).names if name not in known]
        if strange:
            remedy = "if the run kept it frozen, set requires_grad = False on it"
            raise UserError(f"{what} has a parameter {strange[0]!r}, which the run did not train; {remedy}.")


_FORM = TypeAdapter(Description)


def parse(text: bytes, path: Path) -> Description:
    """Parse what `Description.text` wrote; the file may be anyone's."""
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path} is damaged: it has {len(text)} bytes, and a description has far fewer.")
    try:
        d: Description = _FORM.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"] if str(step).isprintable())[:80]
        raise UserError(f"{path} is damaged: it describes no model (at {where or 'its start'}).") from None
    labels_fit = not d.labels or len(d.labels) == (d.classes or d.several)
    outputs_fit = d.outputs >= (d.classes or 1) or (d.classes, d.outputs) == (2, 1)
    sizes = [d.nodes, d.outputs, *d.input_shape, *d.inputs.shape]
    fit = labels_fit and outputs_fit and all(0 < size <= _MOST for size in sizes)
    fit = fit and len(json.dumps(d.model)) <= _MOST_OPTIONS
    if d.format != FORMAT or not fit or not isinstance(d.model.get("kind"), str):
        raise UserError(f"{path} is damaged, or of another version of gossamer: its figures do not fit.")
    return d


def read(path: Path) -> Description:
    return parse(read_bytes(path), path)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
