"""Checkpoints: everything some nodes need to go on after a round, one safetensors file, written all or nothing.

A tensor's leading axis is the nodes; one without axes, or named in `COMMON`, belongs to all of them. So the files of
several processes can be put together again over any other split of the nodes. What else must be kept stands in the
file's header, as text: the run's name for itself, the round, the nodes, bytes and seconds so far, how long each ledger
was, and a digest of all that and of the tensors: a file that was renamed or changed is named, never gone on from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.results.files import digest_of_object, read_bytes
from gossamer.results.rundir import write_atomically

COMMON = ("public", "gradient.released_loss", "controller.random")  # a shared model and what goes with it
VERSION = 2  # since 2 with round and digest
_FACTS = ("bytes_sent", "seconds", "ledgers")
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
    """Write the state of `nodes`, of `of` in all, after `done` rounds."""
    from safetensors.torch import save as serialise

    block = "" if len(nodes) == of else _block(nodes.start, nodes.stop)
    target = folder / f"round-{done:06d}{block}.safetensors"
    content = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    said = {"version": VERSION, "run": run, "round": done, "nodes": [nodes.start, nodes.stop], **facts}
    header = {**said, "digest": _digest(json.loads(json.dumps(said)), content)}
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


def files_of(folder: Path, done: int) -> list[Path]:
    """All that belongs to the checkpoint after `done` rounds."""
    return sorted(path for found, path in _files(folder) if found == done)


def load(folder: Path, done: int, nodes: range) -> Checkpoint:
    """These nodes' part of the checkpoint after `done` rounds, from as many files as it takes."""
    rows: dict[str, list[tuple[int, Tensor]]] = {}
    common: dict[str, Tensor] = {}
    bytes_sent, seconds = 0, 0.0
    ledgers: dict[int, tuple[int, str]] = {}
    for path in files_of(folder, done):
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
                raise UserError(
                    f"{path} holds NaN or infinite values ({key}); nothing comes of going on from there: run it anew."
                )
            if value.ndim == 0 or key in COMMON:
                common[key] = value
            else:
                rows.setdefault(key, []).append((own.start, value[own.start - first : own.stop - first]))
    # What is padded to a block's longest lot does not fit together with other blocks'; it only saved a search.
    joined = {
        key: torch.cat([part for _, part in sorted(parts, key=lambda pair: pair[0])])
        for key, parts in rows.items()
        if len({part.shape[1:] for _, part in parts}) == 1
    }
    return Checkpoint(done, {**common, **joined}, bytes_sent, seconds, ledgers)


def _files(folder: Path) -> Iterable[tuple[int, Path]]:
    for path in sorted(folder.glob("round-*.safetensors")):
        if found := _NAME.fullmatch(path.name):
            yield int(found[1]), path


def _header(path: Path) -> dict[str, Any]:
    """What the file says of itself, and whether its name says the same; the tensors are not read."""
    length = int.from_bytes(read_bytes(path, 8), "little")
    try:
        # As safetensors lays it out: the header's length in eight bytes, then the header.
        said = json.loads(read_bytes(path, 8 + min(length, path.stat().st_size))[8:])
        header: dict[str, Any] = json.loads(said["__metadata__"]["gossamer"])
        first, stop = header["nodes"]
        whole = isinstance(header["run"], str) and 0 <= first < stop and {*_FACTS} <= set(header)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise _damaged(path) from None
    if not whole:
        raise _damaged(path)
    named = _NAME.fullmatch(path.name)
    if "round" in header and (
        named is None or int(named[1]) != header["round"] or named[2] not in (None, _block(first, stop))
    ):
        raise UserError(
            f"{path} was renamed: it is the checkpoint of nodes {first}–{stop - 1} after round {header['round']}; "
            "name it so again, or remove it."
        )
    return header


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors, as they were written."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    header = _header(path)
    try:
        tensors = load(read_bytes(path))
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise _damaged(path) from None
    # Before version 2 there was no digest; one of the words without the others is a changed file.
    if {"digest", "version", "round"} & set(header) and header.get("digest") != _digest(header, tensors):
        raise _damaged(path)
    return header, tensors


def _digest(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    found = hashlib.sha256(digest_of_object(header, without=("digest",)).encode())
    for key in sorted(tensors):
        value = tensors[key]
        found.update(f"{key} {value.dtype} {list(value.shape)}\n".encode())
        found.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _block(first: int, stop: int) -> str:
    return f".nodes-{first:03d}-{stop - 1:03d}"


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged; remove it to go on from an earlier checkpoint.")
