"""At a run's end: the models that its method releases, in the run directory and as an outcome holds them."""

from __future__ import annotations

import copy
import hashlib
from functools import partial
from typing import Any

import torch

from gossamer.data.inputs import inputs_of
from gossamer.kernels.oracle import one_output, shape_of
from gossamer.kernels.stack import ParameterStack, fixed_values
from gossamer.models.layers import Centred
from gossamer.models.networks import models as kinds
from gossamer.results.trained.description import Description, Parameter
from gossamer.results.trained.models import Models
from gossamer.results.trained.weights import DESCRIPTION, HeldWeights
from gossamer.runtime.group import Group
from gossamer.training.assemble import Parts
from gossamer.training.begin import Run


def keep_models(
    parts: Parts, run: Run, group: Group, state: Any, *, average: bool = True
) -> tuple[Models, torch.Tensor, dict[str, str]]:
    """(ready to use, (m, d) the models of the nodes hosted here, files of this process: name → digest).

    Only what is released: models that never leave their nodes are in no file. Every process writes its own nodes'; the
    first of a machine what they share, the average among it, of which every process knows the sum. `average`: is there
    one? A site of a consortium knows its own model alone.
    """
    o, folder = parts.plan, run.directory.path
    points = o.method.released(o.algorithm, state, len(group.nodes)).detach()
    held = HeldWeights(o.stack, group.nodes, points, group.mean(points), fixed_values(o.module))
    description = describe(parts, run.identity)
    files = held.write(folder, run.identity, o.config.nodes, average=average and group.first_here)
    if group.first_here:
        files |= held.write_fixed(folder, run.identity)
        text = description.text()
        run.directory.write_text(DESCRIPTION, text)
        files[DESCRIPTION] = hashlib.sha256(text.encode()).hexdigest()
    return Models(description, held, partial(copy.deepcopy, o.module), parts.data_dir), points, files


def describe(parts: Parts, run: str) -> Description:
    o, dataset = parts.plan, parts.dataset
    shape = dataset.x_train.shape[1:]
    model = {"kind": o.config.model.kind, **kinds.options(o.config.model)}
    return Description(
        run=run,
        nodes=o.config.nodes,
        task=o.task.name,
        classes=o.classes,
        labels=dataset.labels,
        inputs=inputs_of(o.config.data, dataset),
        input_shape=shape,
        outputs=_outputs(o.module, shape),
        probabilities=None if o.task.link == "exp" else o.task.link,
        mean="exp" if o.task.link == "exp" else None,
        level=getattr(o.task, "level", None),
        model={"kind": "own"} if o.own_module else model,
        own_module=o.own_module,
        centre=isinstance(o.module, Centred),
        parameters=tuple(
            Parameter(name=name, shape=size) for name, size in zip(o.stack.names, o.stack.shapes, strict=True)
        ),
    )


@torch.no_grad()
def _outputs(module: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers a record gives: tried on one of zeros, or traced where that has none, as with an inverse."""
    kind = torch.float32 if shape else torch.int64  # a record without a shape is a place in a table
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    try:
        with torch.random.fork_rng(devices=[]):
            return int(module(torch.zeros(1, *shape, dtype=kind, device=device)).numel())
    except Exception:  # the module's own operations
        return shape_of(one_output(module, torch.Size(shape), kind)).numel()


def layout_of(stack: ParameterStack, state: Any) -> dict[str, Any]:
    """How a checkpoint is to be read, for its header."""
    divided = "x / w" if hasattr(state, "w") else "what the method makes of these tensors"
    return {
        "parameters": [[name, list(shape)] for name, shape in zip(stack.names, stack.shapes, strict=True)],
        "rows": "A tensor of so many columns has a row per node: the parameters flattened, in this order.",
        "state": f"This is the method's own state; a node's model is {divided}. Finished runs keep models.safetensors.",
    }
