"""Digests of the models that a run released: what a certificate is about, for whoever has one of them in hand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import UserError

MODELS = "models.safetensors"


def model_digests(models: Any) -> list[str]:
    """sha256 of each row of an (n, d) tensor: its numbers as they lie in memory, little-endian, in their order."""
    rows = models.detach().cpu().contiguous().numpy()
    return [hashlib.sha256(row.astype(row.dtype.newbyteorder("<")).tobytes()).hexdigest() for row in rows]


def check_models(run: Path, nodes: Sequence[int], stated: Sequence[Any]) -> bool:
    """Are the models in this directory those that the certificate is about? False where there are none to compare."""
    path = run / MODELS
    if not path.is_symlink() and not path.exists():
        return False
    found = _rows(path)
    if found is None:
        return False
    if len(found) not in (len(nodes), len(stated)):
        raise UserError(f"{path} holds the models of {len(found)} nodes, and the run has {len(stated)}.")
    whose = nodes if len(found) == len(nodes) else range(len(stated))
    for node, digest in zip(whose, found, strict=True):
        if digest != stated[node]:
            raise UserError(
                f"{path} does not hold the model of node {node} that the certificate is about; put it back."
            )
    return True


def _rows(path: Path) -> list[str] | None:
    """Digests of the rows of the file's one table of models; None where it is kept in another way."""
    from safetensors.torch import load

    from gossamer.results.files import read_bytes

    try:
        tensors: Mapping[str, Any] = load(read_bytes(path))
    except UserError:
        raise
    except Exception as error:  # safetensors has exceptions of its own for what is no such file
        raise UserError(f"{path} is damaged: it is not safetensors ({type(error).__name__}).") from None
    tables = [tensor for tensor in tensors.values() if tensor.ndim == 2]
    return model_digests(tables[0]) if len(tensors) == len(tables) == 1 else None
