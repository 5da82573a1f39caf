"""A trained network in the files that other programs read, each checked against the network itself on random rows."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.data.dataset import FAR, Standard
from gossamer.data.inputs import Inputs
from gossamer.errors import UserError
from gossamer.results.trained.models import Models, Node

FILES = {"safetensors": "model.safetensors", "torchscript": "model.pt", "onnx": "model.onnx"}
_ROWS = 16  # random ones that both must answer alike
_MOST = torch.finfo(torch.float32).max
_CLOSE = 1e-4  # relative to the largest output: other programs add in another order


class _Standard(nn.Module):
    """`Standard.applied`, with numbers for every column: those that it leaves alone have a range without ends."""

    middle: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor
    far: Tensor

    def __init__(self, standard: Standard, shape: tuple[int, ...]) -> None:
        super().__init__()
        own, width = list(standard.places), math.prod(shape)
        for name, others, values in (
            ("middle", 0.0, standard.middle),
            ("spread", 1.0, standard.spread),
            ("low", -_MOST, standard.low),
            ("high", _MOST, standard.high),
            ("far", _MOST, FAR),
        ):
            numbers = torch.full((width,), others)
            numbers[own] = torch.as_tensor(values, dtype=torch.float32)
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
        low = torch.tensor([inputs.ranges.get(name, [0.0, 1.0])[0] for name in inputs.columns])
        high = torch.tensor([inputs.ranges.get(name, [0.0, 1.0])[1] for name in inputs.columns])
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
    """The content of the file. It gives what the network gives, or there is a sentence in its place."""
    if kind == "safetensors":
        return _safetensors(models, node)
    inputs, network = models.description.inputs, models.module(node)
    whole = Prepared(inputs, network).eval() if steps_inside(inputs) else network
    rows = _random_rows(models)
    with _as_torch_is():
        content, again = _torchscript(whole, rows) if kind == "torchscript" else _onnx(whole, rows)
        found = again(rows)
    with torch.no_grad():
        wanted = (models.outputs(rows, node) if steps_inside(inputs) else network(rows)).numpy()
    near = _CLOSE * max(1.0, float(np.abs(wanted).max()))
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=0, atol=near):
        raise UserError(
            f"--format {kind} does not give what the network gives on random rows; use safetensors."
        )
    return content


def _safetensors(models: Models, node: Node | None) -> bytes:
    from safetensors.torch import save

    values = {name: value.clone().contiguous() for name, value in models.state(node).items()}
    content: bytes = save(values, metadata={"format": "pt"})
    return content


def _random_rows(models: Models) -> Tensor:
    d = models.description
    draw = torch.Generator().manual_seed(0)
    if not d.input_shape:  # a place in a table
        return torch.zeros(_ROWS, dtype=torch.int64)
    if not steps_inside(d.inputs):
        return torch.randn(_ROWS, *d.input_shape, generator=draw)
    rows = torch.randn(_ROWS, *d.inputs.shape, generator=draw)
    for name, (low, high) in d.inputs.ranges.items():
        at = d.inputs.columns.index(name)
        rows[:, at] = low + (high - low) * torch.rand(_ROWS, generator=draw)
    return rows


def _torchscript(whole: nn.Module, rows: Tensor) -> tuple[bytes, Any]:
    try:
        traced = torch.jit.trace(whole, rows[:3])  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise UserError(
            f"--format torchscript cannot hold this network ({_first(error)}); use onnx."
        ) from None
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    read = torch.jit.load(buffer)  # type: ignore[no-untyped-call]

    def again(x: Tensor) -> Any:
        with torch.no_grad():
            return read(x).numpy()

    return buffer.getvalue(), again


def _onnx(whole: nn.Module, rows: Tensor) -> tuple[bytes, Any]:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"--format onnx needs {error.name}: pip install 'gossamer[export]', or use safetensors."
        ) from None
    try:
        program = torch.onnx.export(
            whole,
            (rows[:3],),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("rows")},),
            input_names=["records"],
            output_names=["outputs"],
            verbose=False,
        )
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    except Exception as error:  # of whichever part of torch's exporter
        raise UserError(
            f"--format onnx cannot hold this network ({_first(error)}); use safetensors."
        ) from error
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda x: session.run(None, {"records": x.numpy()})[0]


@contextmanager
def _as_torch_is() -> Iterator[None]:
    """torch calls TorchScript deprecated, and its exporter warns of itself: neither is about this model."""
    said = logging.getLogger("torch.onnx")
    level = said.level
    said.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for kind in (
                DeprecationWarning,
                FutureWarning,
                UserWarning,
            ):  # tracing's are compared with the outputs
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        said.setLevel(level)


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
