"""What a site may not forget, forced to disk: one append-only file of checked records, replaced when it has grown.

A record is complete or it is not there: a crash while one is written leaves a torn tail, which is cut off. A record
that does not fit and has others behind it is damage, and a site does not go on from that: it would send again what
others have. (Damage of the very last one cannot be told from a tear; then the neighbours notice, see mass.py.)
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
from torch import Tensor

from gossamer.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps two processes apart
    fcntl = None  # type: ignore[assignment]

SNAPSHOT, RELEASED = 1, 2
_RECORD = struct.Struct("<4sB3xQ32s")
_MAGIC = b"GSJ1"
_LENGTH = struct.Struct("<Q")
_SPARE = 1 << 20  # bytes a file may grow beyond four snapshots before it is replaced


class Storage(Protocol):
    """One file. What `append` and `replace` were given survives a crash once they have returned."""

    def read(self) -> bytes: ...

    def append(self, data: bytes) -> None: ...

    def replace(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class FileStorage:
    """A file of this process alone, forced to disk by every call."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, self._open(path)
        lock = path.with_name(path.name + ".lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        if fcntl is not None:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.close()
                raise UserError(
                    f"{path} is in use by another process: a site runs once, or it would send its mass twice."
                ) from None

    def read(self) -> bytes:
        return self._path.read_bytes()

    def append(self, data: bytes) -> None:
        with _named(self._path):
            _write(self._file, data)
            os.fsync(self._file)

    def replace(self, data: bytes) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with _named(fresh):
                _write(fd, data)
                os.fsync(fd)
        finally:
            os.close(fd)
        fresh.replace(self._path)
        _sync_directory(self._path.parent)
        os.close(self._file)
        self._file = self._open(self._path)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _open(self, path: Path) -> int:
        new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if new:
            _sync_directory(path.parent)
        return fd


class NoStorage:
    """durable = "off": a crash loses x and w together, until the next epoch counts all mass anew."""

    def read(self) -> bytes:
        return b""

    def append(self, data: bytes) -> None:
        pass

    def replace(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Released:
    """A private gradient that was paid for: the answer to the algorithm's question number `use`."""

    use: int
    value: Tensor
    after: dict[str, Tensor]  # the private part's own state after it


@dataclass(frozen=True)
class Contents:
    """What a journal holds: the last snapshot, and the gradients released since the round it stands in began."""

    meta: dict[str, Any] | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    released: dict[int, Released] = field(default_factory=dict)


class Journal:
    """Snapshots of a site and the gradients it released, each on disk when the call returns."""

    def __init__(self, storage: Storage):
        self._storage, self._size = storage, 0
        self.contents = self._read()
        self._released = dict(self.contents.released)

    def snapshot(self, meta: dict[str, Any], tensors: dict[str, Tensor], *, uses: int) -> None:
        """`uses`: the gradients below that number will not be asked for again; the last one is kept all the same."""
        record = _pack(SNAPSHOT, {**meta, "uses": uses}, tensors)
        last = max(self._released, default=0)
        self._released = {use: r for use, r in self._released.items() if use >= uses or use == last}
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
        records, whole = _records(raw)
        self._size = whole
        if whole < len(raw):
            self._storage.replace(raw[:whole])  # so that what is appended does not follow a torn record
        meta, tensors, released = None, {}, {}
        for kind, payload in records:
            found, held = _unpack(payload)
            if kind == SNAPSHOT:
                meta, tensors = found, held
            else:
                value = held.pop("value")
                released[found["use"]] = Released(found["use"], value, held)
        uses, last = (meta or {}).get("uses", 0), max(released, default=0)
        return Contents(meta, tensors, {use: r for use, r in released.items() if use >= uses or use == last})


def _records(raw: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The complete records, and where they end."""
    found, at = [], 0
    while record := _record(raw, at):
        found.append(record)
        at += _RECORD.size + len(record[1])
    after = raw.find(_MAGIC, at + 1)
    while after >= 0:  # a torn record is the last one
        if _record(raw, after):
            raise UserError(
                f"the journal is damaged at byte {at}: restore it, or delete it and rejoin at the next epoch."
            )
        after = raw.find(_MAGIC, after + 1)
    return found, at


def _record(raw: bytes, at: int) -> tuple[int, bytes] | None:
    """(kind, payload) of the record that begins here, if it is complete."""
    start = at + _RECORD.size
    if start > len(raw):
        return None
    magic, kind, length, digest = _RECORD.unpack_from(raw, at)
    payload = raw[start : start + length]
    whole = magic == _MAGIC and len(payload) == length and hashlib.sha256(payload).digest() == digest
    return (kind, payload) if whole else None


def _pack(kind: int, meta: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    text = json.dumps(meta).encode()
    held = safetensors.torch.save(
        {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
    )
    payload = b"".join([_LENGTH.pack(len(text)), text, held])
    return _RECORD.pack(_MAGIC, kind, len(payload), hashlib.sha256(payload).digest()) + payload


def _pack_released(released: Released) -> bytes:
    return _pack(RELEASED, {"use": released.use}, {**released.after, "value": released.value})


def _unpack(payload: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    (length,) = _LENGTH.unpack_from(payload)
    text = payload[_LENGTH.size : _LENGTH.size + length]
    return json.loads(text), safetensors.torch.load(payload[_LENGTH.size + length :])


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of an open file says which one it is."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
