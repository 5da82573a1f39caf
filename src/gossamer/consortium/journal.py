"""The journal: what a site may not forget, in one append-only file, replaced when it has grown.

A record is complete or it is not there: a crash during a write leaves a torn tail, which is cut off. A record that does
not fit its digest and has others behind it is damage, and a site does not continue from that: it would send again what
others have. (Damage of the very last record cannot be told from a tear; then the neighbours notice, see mass.py.)
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.consortium.frames import pack_tensors, unpack_tensors
from gossamer.errors import UserError
from gossamer.results.rundir import lock_file, sync_folder, write_atomically

SNAPSHOT, RELEASED = 1, 2
_RECORD = struct.Struct("<4sB3xQ32s")
_MAGIC = b"GSJ2"
_SPARE = 1 << 20  # bytes a file may grow beyond four snapshots before it is replaced


class FileStorage:
    """A file that one process uses, forced to disk by every call."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A site runs once, or it would send its mass twice.
        busy = f"another process runs the site of {path}; wait until it has ended."
        self._path, self._lock = path, lock_file(path.with_name(path.name + ".lock"), busy)
        self._open()

    def _open(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(fd, "ab", buffering=0)
        sync_folder(self._path.parent)

    def read(self) -> bytes:
        return self._path.read_bytes()

    def append(self, data: bytes) -> None:
        """Write so that a crash after the return loses nothing."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def replace(self, data: bytes) -> None:
        """Write in place of everything, all or nothing."""
        write_atomically(self._path, data, 0o600)
        self._file.close()
        self._open()

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._lock.release()


@dataclass(frozen=True)
class Released:
    """A private gradient that was paid for: the answer to the algorithm's request number `use`."""

    use: int
    value: Tensor
    after: dict[str, Tensor]  # the reader's own state after it


@dataclass(frozen=True)
class Contents:
    """The last snapshot, and the gradients released since the round of that snapshot began."""

    meta: dict[str, Any] | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    released: dict[int, Released] = field(default_factory=dict)


class Journal:
    """Snapshots of a site and the gradients it released, each on disk when the call returns."""

    def __init__(self, storage: FileStorage):
        self._storage, self._size = storage, 0
        self.contents = self._read()
        self._released = dict(self.contents.released)

    def snapshot(self, meta: dict[str, Any], tensors: dict[str, Tensor], *, uses: int) -> None:
        """Write a snapshot. Gradients below number `uses` will not be requested again; the last one is kept anyway."""
        record = _pack(SNAPSHOT, {**meta, "uses": uses}, tensors)
        self._released = _needed(self._released, uses)
        if self._size + len(record) > 4 * len(record) + _SPARE:
            record = b"".join([record, *map(_pack_released, self._released.values())])
            self._storage.replace(record)
            self._size = len(record)
        else:
            self._append(record)

    def release(self, released: Released) -> None:
        self._released[released.use] = released
        self._append(_pack_released(released))

    def close(self) -> None:
        self._storage.close()

    def _append(self, record: bytes) -> None:
        self._storage.append(record)
        self._size += len(record)

    def _read(self) -> Contents:
        raw = self._storage.read()
        records, self._size = _records(raw)
        if self._size < len(raw):
            self._storage.replace(raw[: self._size])  # so that nothing is appended to a torn record
        meta, tensors, released = None, {}, {}
        for kind, payload in records:
            text, content = unpack_tensors(payload)
            header = json.loads(text)
            if kind == SNAPSHOT:
                meta, tensors = header, content
            else:
                value = content.pop("value")
                released[header["use"]] = Released(header["use"], value, content)
        return Contents(meta, tensors, _needed(released, (meta or {}).get("uses", 0)))


def _needed(released: dict[int, Released], uses: int) -> dict[int, Released]:
    last = max(released, default=0)
    return {use: entry for use, entry in released.items() if use >= uses or use == last}


def _records(raw: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Return the complete records, and where they end."""
    records, at = [], 0
    while record := _record(raw, at):
        records.append(record)
        at += _RECORD.size + len(record[1])
    after = raw.find(_MAGIC, at + 1)
    while after >= 0:  # a torn record is the last one
        if _record(raw, after):
            raise UserError(f"the journal is damaged at byte {at}; restore it, or delete it and rejoin.")
        after = raw.find(_MAGIC, after + 1)
    return records, at


def _record(raw: bytes, at: int) -> tuple[int, bytes] | None:
    """Return (kind, payload) of the record that begins here, if it is complete."""
    start = at + _RECORD.size
    if start > len(raw):
        return None
    magic, kind, length, digest = _RECORD.unpack_from(raw, at)
    payload = raw[start : start + length]
    complete = magic == _MAGIC and len(payload) == length and hashlib.sha256(payload).digest() == digest
    return (kind, payload) if complete else None


def _pack(kind: int, header: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    payload = pack_tensors(header, tensors)
    return _RECORD.pack(_MAGIC, kind, len(payload), hashlib.sha256(payload).digest()) + payload


def _pack_released(released: Released) -> bytes:
    return _pack(RELEASED, {"use": released.use}, {**released.after, "value": released.value})


class JournaledGradient:
    """grad(points) from the journal where it has the answer, else a new one, which is written before it is used.

    After a crash a round is repeated, perhaps at another point since other parcels have come; what was released stays
    what was released. `reader` pays for every answer: `PrivateGradient`, or a method's own. `paid` is the number of
    draws in the ledger: one that was paid for and did not reach the journal is lost, never drawn again.
    """

    def __init__(self, reader: Any, journal: Journal, *, uses: int = 0, paid: int = 0):
        self._reader, self._journal, self.uses = reader, journal, uses
        self._known = dict(journal.contents.released)
        if self._known:
            reader.restore(self._known[max(self._known)].after)
        reader.draws = max(reader.draws, paid)

    @property
    def draws(self) -> int:
        return int(self._reader.draws)

    def __call__(self, points: Tensor) -> Tensor:
        use, self.uses = self.uses, self.uses + 1
        known = self._known.pop(use, None)
        if known is not None:
            return known.value.to(points)
        value: Tensor = self._reader(points)
        after = {key: torch.as_tensor(item) for key, item in self._reader.state().items()}
        self._journal.release(Released(use, value, after))
        return value
