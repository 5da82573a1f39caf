"""Export of a trained model: files that other programs read, each checked against the network, and a model card."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.data.dataset import FAR, Standard
from gossamer.data.inputs import Inputs
from gossamer.errors import UserError
from gossamer.models.layers import has_adapters
from gossamer.models.lora import merge_lora
from gossamer.models.losses import MultiLabel, Regression
from gossamer.results.certificate import site_of
from gossamer.results.pages import environment
from gossamer.results.trained import BROUGHT, Description, Models, Node

FILES = {"safetensors": "model.safetensors", "onnx": "model.onnx"}
WITHHELD = "not given: the records are private, and a digest would let others test guesses of them"
_ROWS = 16  # random ones on which the file must agree with the network
_MOST = torch.finfo(torch.float32).max
_CLOSE = 1e-4  # relative to the largest output: other programs add in another order
_PRIVACY = (
    "epsilon_proven", "epsilon_claimed", "epsilon_audited", "delta", "adjacency", "unit", "observer", "stamp",
    "not_proven_because",
)  # fmt: skip


class _Standard(nn.Module):
    """`Standard.applied`, with numbers for every column: those that it leaves alone have a range without ends."""

    middle: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor
    far: Tensor

    def __init__(self, standard: Standard, shape: tuple[int, ...]) -> None:
        super().__init__()
        others = {"middle": 0.0, "spread": 1.0, "low": -_MOST, "high": _MOST, "far": _MOST}
        for name, other in others.items():
            numbers = torch.full((math.prod(shape),), other)
            own = FAR if name == "far" else getattr(standard, name)
            numbers[list(standard.places)] = torch.as_tensor(own, dtype=torch.float32)
            self.register_buffer(name, numbers.reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.minimum(torch.maximum(x, self.low), self.high)
        scaled = (inside - self.middle) / self.spread
        return torch.minimum(torch.maximum(scaled, -self.far), self.far)


class Prepared(nn.Module):
    """The network behind the steps that a record goes through first, as far as they are arithmetic of one row."""

    low: Tensor
    span: Tensor

    def __init__(self, inputs: Inputs, network: nn.Module) -> None:
        super().__init__()
        ranges = [inputs.ranges.get(name, [0.0, 1.0]) for name in inputs.columns]
        low, high = torch.tensor(ranges).reshape(-1, 2).T
        self.register_buffer("low", low)
        self.register_buffer("span", high - low)
        self.ranges, self.scale, self.bias = bool(inputs.ranges), inputs.scale, inputs.bias
        self.standard = None if inputs.standard is None else _Standard(inputs.standard, inputs.shape)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        if self.ranges:
            x = (x - self.low) / self.span
        if self.standard is not None:
            x = self.standard(x)
        if self.scale != "none":
            length = x.flatten(1).square().sum(1).sqrt()
            length = length.clamp_min(1.0 if self.scale == "unit-ball" else 1e-30)
            x = x / length.reshape(-1, *[1] * (x.ndim - 1))
        if self.bias:
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
            x = x if self.bias == "outside" else x / math.sqrt(2)
        out: Tensor = self.network(x)
        return out


def steps_inside(inputs: Inputs) -> bool:
    """Are a record's steps part of the file? Words, features and components are not: they are done before."""
    return inputs.schema is None and not inputs.transform and inputs.pca is None


def converted(models: Models, node: Node | None, kind: str) -> bytes:
    """Return the content of the file; raise where it does not give what the network gives."""
    if kind == "safetensors":
        from safetensors.torch import save

        state = merged_state(models, node)
        values = {name: value.clone().contiguous() for name, value in state.items()}
        return bytes(save(values, metadata={"format": "pt"}))
    inputs, network = models.description.inputs, merge_lora(models.module(node))
    whole = Prepared(inputs, network).eval() if steps_inside(inputs) else network
    rows = _random_rows(models.description)
    with _quiet_torch(), torch.no_grad():
        content, run = _onnx(whole, rows)
        outputs = run(rows)
        due = (models.outputs(rows, node) if steps_inside(inputs) else network(rows)).numpy()
    near = _CLOSE * max(1.0, float(np.abs(due).max()))
    if outputs.shape != due.shape or not np.allclose(outputs, due, rtol=0, atol=near):
        raise UserError("--format onnx does not give what the network gives on random rows; use safetensors.")
    return content


def merged_state(models: Models, node: Node | None) -> dict[str, Tensor]:
    """Return all values of the network by name, adapters merged into their layers."""
    if not has_adapters(parameter.name for parameter in models.description.parameters):
        return models.state(node)  # for which no code of the user's is needed
    network = merge_lora(models.module(node))
    return {name: value.detach() for name, value in (*network.named_parameters(), *network.named_buffers())}


def _random_rows(d: Description) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if not d.input_shape:  # an index into a table
        return torch.zeros(_ROWS, dtype=torch.int64)
    if d.inputs.parts is not None:  # places are 0 or 1, and a mask hides nothing
        random: dict[str, Callable[..., Tensor]] = {
            "float": partial(torch.randn, generator=generator),
            "int": lambda *shape: torch.randint(2, shape, generator=generator).float(),
            "bool": torch.ones,
        }
        return torch.cat([random[part.type](_ROWS, math.prod(part.shape)) for part in d.inputs.parts], 1)
    if not steps_inside(d.inputs):
        return torch.randn(_ROWS, *d.input_shape, generator=generator)
    rows = torch.randn(_ROWS, *d.inputs.shape, generator=generator)
    for name, (low, high) in d.inputs.ranges.items():
        rows[:, d.inputs.columns.index(name)] = low + (high - low) * torch.rand(_ROWS, generator=generator)
    return rows


_Run = Callable[[Tensor], NDArray[Any]]


def _onnx(whole: nn.Module, rows: Tensor) -> tuple[bytes, _Run]:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        how = "pip install 'gossamer[export]', or use safetensors"
        raise UserError(f"--format onnx needs {error.name}; {how}.") from None
    try:
        shapes = ({0: torch.export.Dim("rows")},)
        names: dict[str, Any] = {"input_names": ["records"], "output_names": ["outputs"], "verbose": False}
        program = torch.onnx.export(whole, (rows[:3],), dynamo=True, dynamic_shapes=shapes, **names)
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    except Exception as error:  # of whichever part of torch's exporter
        raise UserError(f"--format onnx cannot hold it ({_first_line(error)}); use safetensors.") from error
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda x: session.run(None, {"records": x.numpy()})[0]


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Silence the warnings of torch's exporter: none is about this model."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def card(
    d: Description,
    c: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    rounds: int,
    node: Node,
    file: str,
    kind: str,
) -> dict[str, Any]:
    """Return what goes with a model: what it is, what it was trained on, and its privacy statement `c`."""
    inside = steps_inside(d.inputs) and kind != "safetensors"
    return {
        "name": manifest["name"],
        "task": d.task,
        "classes": d.names,
        "model": {"file": file, "format": kind, "network": d.model, "of": whose(node, d.nodes, c)},
        "inputs": {
            "shape": list(d.inputs.shape if inside else d.input_shape),
            "columns": list(d.inputs.columns),
            "label": d.inputs.label,
            "steps": d.inputs.steps(),
            "steps_are": "in the file" if inside else "to be done before, as gossamer predict does them",
        },
        "outputs": meaning(d),
        "data": {"sha256": WITHHELD, **manifest.get("data", {})},
        **{key: c[key] for key in ("method", "mode")},
        "nodes": d.nodes,
        "rounds": rounds,
        "privacy": {
            **{key: c[key] for key in _PRIVACY},
            "budget": c.get("budget"),
            "notes": [*c["claim_flags"], *c["notes"]],
            "not_covered": [line.replace("listed here", "of the certificate") for line in c["not_covered"]],
        },
        "run": d.run,
        "trained": manifest.get("started"),
        "exported": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": c["versions"],
    }


def whose(node: Node, nodes: int, certificate: Mapping[str, Any]) -> str:
    """Say which model it is."""
    if node == "average":
        return f"the mean of the models of all {nodes} nodes"
    site = site_of(certificate)
    return f"node {node} of {nodes}" + (f", the site {site}" if site else "")


def meaning(d: Description) -> str:
    """Say what the outputs of the network are."""
    if isinstance(d.prediction, Regression):
        what = "number" if d.level is None else f"{d.level:g}-quantile"
        return f"the predicted {what}" if d.mean is None else "its exponential is the predicted mean"
    several = isinstance(d.prediction, MultiLabel)
    each = "one number per label" if several else "one number per class, in the order of the classes"
    each = each if several or d.outputs > 1 else "one number: above 0 is the second class"
    if d.probabilities is None:
        return f"{each}; scores, not probabilities" + ("; above 0.5 is yes" if several else "")
    if d.probabilities == "softmax" and not several:
        return f"{each}; not normalised (logits): softmax makes probabilities of them, the largest is the prediction"
    rest = " of yes" if several else ", divided by their sum" if d.outputs > 1 else " of the second class"
    return f"{each}; not normalised (logits): 1 / (1 + exp(−t)) makes probabilities of them{rest}"


def markdown(c: Mapping[str, Any]) -> str:
    """Return a card as Markdown; every value is escaped where it enters the template."""
    template = environment().overlay(autoescape=False, finalize=_plain).get_template("model_card.md.j2")
    return template.render(c=c, own_module=c["model"]["network"]["kind"] in BROUGHT)


def _plain(value: Any) -> str:
    """Return words of a run directory on one line, with nothing that Markdown or HTML obeys."""
    text = "".join(ch if ch.isprintable() else " " for ch in str(value))[:400]
    return "".join(f"\\{ch}" if ch in "\\`*_[]<>|#" else ch for ch in text)
