"""Checkpoints: everything some nodes need to go on after a round, one safetensors file, written all or nothing.

A tensor's leading axis is the nodes; one without axes belongs to all of them. So the files of several processes can be
put together again over any other split of the nodes. What else must be kept stands in the file's header, as text: the
run's name for itself, the nodes, the bytes and seconds so far, and how long each ledger was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.results.rundir import write_atomically

_NAME = re.compile(r"round-(\d+)(\.nodes-\d+-\d+)?\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    round: int
    tensors: dict[str, Tensor]
    bytes_sent: int
    seconds: float
    ledgers: dict[int, tuple[int, str]]  # node → events and head hash at that time


def save(
    folder: Path,
    done: int,
    nodes: range,
    of: int,
    *,
    run: str,
    tensors: dict[str, Tensor],
    facts: dict[str, Any],
) -> Path:
    """`nodes` of `of` nodes in all, after `done` rounds."""
    from safetensors.torch import save as serialise

    block = "" if len(nodes) == of else f".nodes-{nodes.start:03d}-{nodes.stop - 1:03d}"
    target = folder / f"round-{done:06d}{block}.safetensors"
    header = {"run": run, "nodes": [nodes.start, nodes.stop], **facts}
    content = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    write_atomically(target, serialise(content, metadata={"gossamer": json.dumps(header)}))
    return target


def drop_older(folder: Path, done: int) -> None:
    """Remove what a newer checkpoint has made superfluous."""
    for found, path in _files(folder):
        if found < done:
            path.unlink(missing_ok=True)


def rounds_with(folder: Path, nodes: range, *, run: str) -> list[int]:
    """The rounds for which every one of these nodes can be found here."""
    held: dict[int, set[int]] = {}
    for done, path in _files(folder):
        header = _header(path)
        if header["run"] != run:
            raise UserError(f"{path} belongs to another run; remove it.")
        held.setdefault(done, set()).update(range(*header["nodes"]))
    return sorted(done for done, found in held.items() if found.issuperset(nodes))


def load(folder: Path, done: int, nodes: range) -> Checkpoint:
    """These nodes' part of the checkpoint after `done` rounds, from as many files as it takes."""
    from safetensors.torch import load_file

    rows: dict[str, list[tuple[int, Tensor]]] = {}
    common: dict[str, Tensor] = {}
    bytes_sent, seconds = 0, 0.0
    ledgers: dict[int, tuple[int, str]] = {}
    for path in sorted(path for found, path in _files(folder) if found == done):
        header = _header(path)
        first, stop = header["nodes"]
        seconds = max(seconds, header["seconds"])
        bytes_sent += header["bytes_sent"] if first in nodes else 0
        ledgers |= {int(k): (v[0], v[1]) for k, v in header["ledgers"].items() if int(k) in nodes}
        own = range(max(first, nodes.start), min(stop, nodes.stop))
        if not own:
            continue
        for key, value in load_file(path).items():
            if value.ndim == 0:
                common[key] = value
            else:
                rows.setdefault(key, []).append((own.start, value[own.start - first : own.stop - first]))
    joined = {
        key: torch.cat([part for _, part in sorted(parts, key=lambda pair: pair[0])])
        for key, parts in rows.items()
    }
    return Checkpoint(done, {**common, **joined}, bytes_sent, seconds, ledgers)


def _files(folder: Path) -> Iterable[tuple[int, Path]]:
    for path in sorted(folder.glob("round-*.safetensors")):
        if found := _NAME.fullmatch(path.name):
            yield int(found[1]), path


def _header(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()["gossamer"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise UserError(f"{path} is damaged; remove it to go on from an earlier checkpoint.") from None
    return header
