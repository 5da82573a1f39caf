"""A folder's files as bytes, and back: what a worker sends is data, checked name by name before a byte is written.

8 bytes   length of the header
header    JSON: {"said": …, "files": [[name, size, sha256], …]}
bytes     of the files, one after the other
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from gossamer.results.seals import KEY

_LENGTH = 8
MOST_HEADER = 1 << 24
_PART = r"[A-Za-z0-9_][A-Za-z0-9._=-]*"  # no hidden file, no folder above
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,5}}")


class ParcelError(ValueError):
    """Not what a worker sends."""


def pack(said: dict[str, Any], folder: Path | None = None) -> bytes:
    """The folder's files; a run's key, which signs whatever its holder likes, stays where it was made."""
    found = sorted(folder.rglob("*")) if folder is not None else []
    paths = [path for path in found if path.is_file() and not path.is_symlink() and path.name != KEY]
    contents = [path.read_bytes() for path in paths]
    files = [
        [path.relative_to(folder).as_posix(), len(content), hashlib.sha256(content).hexdigest()]
        for path, content in zip(paths, contents, strict=True)
        if folder is not None
    ]
    header = json.dumps({"said": said, "files": files}).encode()
    return b"".join([len(header).to_bytes(_LENGTH, "big"), header, *contents])


def unpack(parcel: object) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(what was said, name → content); raises `ParcelError` where anything is not as `pack` makes it."""
    if not isinstance(parcel, bytes):
        raise ParcelError(f"it is a {type(parcel).__name__}, not bytes")
    length = int.from_bytes(parcel[:_LENGTH], "big")
    if len(parcel) < _LENGTH or length > min(MOST_HEADER, len(parcel) - _LENGTH):
        raise ParcelError("its header is cut off")
    try:
        header = json.loads(parcel[_LENGTH : _LENGTH + length])
    except (ValueError, RecursionError):
        raise ParcelError("its header is not JSON") from None
    if not isinstance(header, dict) or not isinstance(header.get("said"), dict):
        raise ParcelError("its header says nothing")
    files, at = {}, _LENGTH + length
    for name, size, digest in _listed(header.get("files")):
        content = parcel[at : at + size]
        if len(content) != size or hashlib.sha256(content).hexdigest() != digest or name in files:
            raise ParcelError(f"{name} is not what its header says")
        files[name] = content
        at += size
    if at != len(parcel):
        raise ParcelError("there are bytes behind its last file")
    return header["said"], files


def _listed(files: object) -> list[tuple[str, int, str]]:
    if not isinstance(files, list):
        raise ParcelError("its header lists no files")
    found = []
    for entry in files:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, int, str]:
            raise ParcelError("its header lists something that is no file")
        name, size, digest = entry
        if _NAME.fullmatch(name) is None or size < 0 or name.rpartition("/")[2] == KEY:
            raise ParcelError(f"{name[:80]!r} is no name of a run's file")
        found.append((name, size, digest))
    return found


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Write them into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
