"""The canonical form of a public set, and what is recorded about it in checksums.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from gossamer.data.dataset import Array

PARTS = ("x_train", "y_train", "x_test", "y_test")


class MismatchError(ValueError):
    """The records are not the recorded ones. `other` names the public set they are instead, if any."""

    def __init__(self, message: str, other: str | None = None) -> None:
        super().__init__(message)
        self.other = other


def canonical(raw: Mapping[str, Array]) -> dict[str, Array]:
    """The four arrays in fixed order: features as published, labels as int64, all little-endian and C order.

    The same records get the same bytes whichever source they came from.
    """
    missing = [part for part in PARTS if part not in raw]
    if missing:
        raise MismatchError(f"it has no array {missing[0]}")
    result: dict[str, Array] = {}
    for part in PARTS:
        array = raw[part]
        if array.dtype.kind not in "iu":
            raise MismatchError(f"{part} has dtype {array.dtype} instead of integers")
        if part.startswith("y"):
            array = array.astype(np.int64)
        result[part] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return result


def digest(arrays: Mapping[str, Array]) -> str:
    """sha256 over name, dtype, shape and bytes of the arrays, in the order given."""
    state = hashlib.sha256()
    for name, array in arrays.items():
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # without a copy
    return state.hexdigest()


def check_arrays(name: str, raw: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """The canonical arrays of the set `name` and their sha256, or MismatchError."""
    arrays = canonical(raw)
    got, expected = digest(arrays), recorded()["arrays"].get(name)
    if expected is None or got == expected:
        return arrays, got
    other = next((known for known, value in recorded()["arrays"].items() if value == got), None)
    held = f"it holds {other}: " if other else ""
    raise MismatchError(f"{held}sha256 {got[:12]}… instead of {expected[:12]}…", other)


def check_archive(path: Path) -> None:
    """Compare one of the publisher's archives with the publisher's md5, where it gives one."""
    expected = recorded()["archives_md5"].get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if got != expected:
        raise MismatchError(f"md5 {got[:12]}… instead of {expected[:12]}…")


@cache
def recorded() -> dict[str, dict[str, str]]:
    """`arrays`: sha256 in canonical form by set; `archives_md5`: by file name."""
    text = resources.files("gossamer.data").joinpath("checksums.json").read_text(encoding="utf-8")
    checksums: dict[str, dict[str, str]] = json.loads(text)
    return checksums
