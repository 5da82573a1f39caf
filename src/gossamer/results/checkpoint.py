"""Checkpoints: what some nodes need to continue after a round, one safetensors file, written all or nothing.

A tensor's leading axis is the nodes; one without axes, or named in `COMMON`, belongs to all of them, so the files of
several processes can be joined over any other split of the nodes. The file's header has the run's identity, the round,
the nodes, bytes and seconds so far, the length of each ledger, and a digest of all that and of the tensors: a file
that was renamed or changed is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.results.rundir import digest_of_object, read_bytes, write_atomically

COMMON = ("public", "gradient.released_loss", "controller.random")  # a shared model and what goes with it
VERSION = 2
_FACTS = ("bytes_sent", "seconds", "ledgers", "round", "digest")
_NAME = re.compile(r"round-(\d+)(\.nodes-\d+-\d+)?\.safetensors")
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Checkpoint:
    round: int
    tensors: dict[str, Tensor]
    bytes_sent: int
    seconds: float
    ledgers: dict[int, tuple[int, str]]  # node → events and head hash at that time


def save(folder: Path, nodes: range, of: int, tensors: dict[str, Tensor], **facts: Any) -> Path:
    """Write the state of `nodes`, of `of` in all; `facts`: `run`, `round` (rounds done), `ledgers` and the like."""
    block = "" if len(nodes) == of else _block(nodes.start, nodes.stop)
    target = folder / f"round-{facts['round']:06d}{block}.safetensors"
    content = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    header = {"version": VERSION, "nodes": [nodes.start, nodes.stop], **facts}
    header["digest"] = _digest(json.loads(json.dumps(header)), content)
    write_tensors(target, content, header)
    return target


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write a safetensors file with a header of ours."""
    from safetensors.torch import save

    write_atomically(path, save(dict(tensors), metadata={"gossamer": json.dumps(header)}))


def tensors_header(content: bytes) -> dict[str, Any]:
    """Return the header that `write_tensors` wrote, from the beginning of the file; raise one of MALFORMED."""
    # safetensors: the length of the header in eight bytes, then the header.
    end = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(content[8:end])["__metadata__"]["gossamer"])
    return header


def drop_older(folder: Path, done: int) -> None:
    """Remove the checkpoints that a newer one supersedes."""
    for at, path in _files(folder):
        if at < done:
            path.unlink(missing_ok=True)


def rounds_with(folder: Path, nodes: range, *, run: str) -> list[int]:
    """Return the rounds after which every one of these nodes has a checkpoint here."""
    nodes_by_round: dict[int, set[int]] = {}
    for done, path in _files(folder):
        header = _header(path)
        if header["run"] != run:
            raise UserError(f"{path} belongs to another run; remove it.")
        nodes_by_round.setdefault(done, set()).update(range(*header["nodes"]))
    return sorted(done for done, here in nodes_by_round.items() if here.issuperset(nodes))


def load(folder: Path, done: int, nodes: range) -> Checkpoint:
    """Read these nodes' part of the checkpoint after `done` rounds, from as many files as it takes."""
    rows, common = dict[str, list[tuple[int, Tensor]]](), dict[str, Tensor]()
    bytes_sent, seconds, ledgers = 0, 0.0, dict[int, tuple[int, str]]()
    for path in (path for at, path in _files(folder) if at == done):
        header, tensors = _read(path)
        first, stop = header["nodes"]
        seconds = max(seconds, header["seconds"])
        bytes_sent += header["bytes_sent"] if first in nodes else 0
        ledgers |= {int(k): (v[0], v[1]) for k, v in header["ledgers"].items() if int(k) in nodes}
        own = range(max(first, nodes.start), min(stop, nodes.stop))
        if not own:
            continue
        for key, value in tensors.items():
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise UserError(f"{path} holds NaN or infinite values ({key}); run it again.")
            if value.ndim == 0 or key in COMMON:
                common[key] = value
            else:
                rows.setdefault(key, []).append((own.start, value[own.start - first : own.stop - first]))
    # What is padded to a block's longest lot does not fit other blocks' and only saved a search: left out.
    joined = {
        key: torch.cat([part for _, part in sorted(parts, key=lambda pair: pair[0])])
        for key, parts in rows.items()
        if len({part.shape[1:] for _, part in parts}) == 1
    }
    return Checkpoint(done, {**common, **joined}, bytes_sent, seconds, ledgers)


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in sorted(folder.glob("round-*.safetensors")):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), path


def _header(path: Path) -> dict[str, Any]:
    """Return the header, checked against the file's name; the tensors are not read."""
    try:
        length = min(int.from_bytes(read_bytes(path, 8), "little"), path.stat().st_size)
        header = tensors_header(read_bytes(path, 8 + length))
        first, stop = header["nodes"]
        if not (isinstance(header["run"], str) and 0 <= first < stop and {*_FACTS} <= set(header)):
            raise _damaged(path)
    except (OSError, *MALFORMED):
        raise _damaged(path) from None
    name = _NAME.fullmatch(path.name)
    if name is None or int(name[1]) != header["round"] or name[2] not in (None, _block(first, stop)):
        what = f"the checkpoint of nodes {first}–{stop - 1} after round {header['round']}"
        raise UserError(f"{path} was renamed: it is {what}; restore its name, or remove it.")
    return header


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    header = _header(path)
    try:
        tensors = load(read_bytes(path))
    except (SafetensorError, *MALFORMED):
        raise _damaged(path) from None
    if header["digest"] != _digest(header, tensors):
        raise _damaged(path)
    return header, tensors


def _digest(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    total = hashlib.sha256(digest_of_object(header, without=("digest",)).encode())
    for key in sorted(tensors):
        value = tensors[key]
        total.update(f"{key} {value.dtype} {list(value.shape)}\n".encode())
        total.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _block(first: int, stop: int) -> str:
    return f".nodes-{first:03d}-{stop - 1:03d}"


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged; remove it to resume from an earlier checkpoint.")
