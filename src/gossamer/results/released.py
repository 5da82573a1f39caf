"""Digests of the models that a run released: what a certificate is about, for whoever has one of them in hand.

A run directory may hold them: `models.safetensors`, or a part for some nodes, `models.nodes-000-003.safetensors`, has
every parameter under its name with the nodes as its first axis (one row where all nodes hold the same); `model.json`
has the order of the parameters.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.files import read_bytes, read_object

MODELS, DESCRIPTION = "models.safetensors", "model.json"


def model_digests(models: Any) -> list[str]:
    """sha256 of each row of an (n, d) tensor: float32, little-endian, all parameters of a node in their order."""
    rows = models.detach().cpu().float().contiguous().numpy().astype("<f4")
    return [hashlib.sha256(row.tobytes()).hexdigest() for row in rows]


def digests_of_models(run: Path, nodes: int) -> dict[int, str]:
    """Return the digest of every node's model in this directory; `nodes`: how many the run has."""
    digests: dict[int, str] = {}
    for path in sorted(run.glob("models*.safetensors")):
        numbers = [int(number) for number in re.findall(r"\d+", path.name)]
        of = range(numbers[0], numbers[-1] + 1) if numbers else range(nodes)
        rows = _digests_in(path)
        rows = rows * len(of) if len(rows) == 1 else rows
        if len(rows) != len(of) or of.stop > nodes:
            raise UserError(f"{path} has the models of {len(rows)} nodes, and the run has {nodes}.")
        digests.update(zip(of, rows, strict=True))
    return digests


def _digests_in(path: Path) -> list[str]:
    import torch
    from safetensors.torch import load

    content = read_bytes(path)
    try:
        tensors = load(content)
        order = _order(path.parent) or list(tensors)
        rows = [tensors.pop(name) for name in order]
        flat = torch.cat([tensor.reshape(tensor.shape[0], -1) for tensor in rows], dim=1)
    except UserError:
        raise
    except Exception as error:  # safetensors and torch have their own for what is no such file
        raise UserError(
            f"{path} is damaged: it does not hold a run's models ({type(error).__name__})."
        ) from None
    if tensors:
        raise UserError(f"{path} is damaged: {DESCRIPTION} does not know {sorted(tensors)[0]!r:.60}.")
    return model_digests(flat)


def _order(run: Path) -> list[str]:
    """Of the parameters; empty where nothing says it."""
    path = run / DESCRIPTION
    if not path.is_symlink() and not path.exists():
        return []
    parameters = read_object(path, "parameters")["parameters"]
    return [one["name"] if isinstance(one, dict) else one[0] for one in parameters]
