"""Do two machines run the same code? By its bytes, not by what it calls itself."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gossamer
from gossamer.options.plugins import FILES, GROUP

_KINDS = {".py", ".toml", ".json", ".proto"}


def code() -> dict[str, Any]:
    """Our version and digest, and those of the plug-ins that are known here; what JSON can say."""
    return {"version": gossamer.__version__, "source": _source(), "plugins": plugins()}


@cache
def _source() -> str:
    """As it was when first asked for."""
    root = Path(gossamer.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in _KINDS and path.is_file():
            whole.update(f"{path.relative_to(root).as_posix()}\n".encode())
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def plugins() -> dict[str, str]:
    """What people call each → what must be the same: a file's bytes, a package's version."""
    found = {}
    for name in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(name)
        content = path.read_bytes() if path.is_file() else b""
        found[path.name] = hashlib.sha256(content).hexdigest()
    for entry in entry_points(group=GROUP):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "no package"
        found[f"{entry.name} ({entry.value})"] = package
    return found


def difference(here: dict[str, Any], there: dict[str, Any], worker: str) -> str | None:
    """Why a worker cannot do our jobs, in a sentence; None if it can. It may know more plug-ins than we do."""
    for key in ("version", "source"):
        if here[key] != there.get(key):
            known = f"gossamer {there.get('version')}, code {str(there.get('source'))[:12]}"
            return (
                f"the worker {worker} has {known}, and here is {here['version']}, code {here['source'][:12]}; install "
                "the same on both."
            )
    known_there = there.get("plugins")
    for name, digest in here["plugins"].items():
        if not isinstance(known_there, dict) or known_there.get(name) != digest:
            return (
                f"the plug-in {name} is not known at the worker {worker}, or is another there: no code is sent, so "
                f"start the worker with {FILES} naming the same file, or install the same package."
            )
    return None
