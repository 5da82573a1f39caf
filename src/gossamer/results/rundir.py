"""The run directory: append-only files, so that the live page, the report and a resumed run read the same."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import tomli_w

from gossamer.errors import UserError


class RunDirectory:
    """config.toml, manifest.json, topology.json, metrics.jsonl, ledger/, checkpoints/, certificate.json and .html."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path | None, name: str) -> RunDirectory:
        """A new directory; `path` must not exist or be empty, so that nothing is ever overwritten."""
        directory = new_directory(path, name)
        for part in ("ledger", "checkpoints"):
            (directory.path / part).mkdir(exist_ok=True)
        return directory

    @property
    def ledger(self) -> Path:
        return self.path / "ledger"

    def write_config(self, config: dict[str, Any]) -> None:
        write_atomically(self.path / "config.toml", tomli_w.dumps(_without_none(config)).encode())

    def write_json(self, name: str, content: Any) -> None:
        write_atomically(
            self.path / name, (json.dumps(finite(content), indent=2, ensure_ascii=False) + "\n").encode()
        )

    def write_text(self, name: str, content: str) -> None:
        write_atomically(self.path / name, content.encode())

    def append_metrics(self, row: dict[str, Any]) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row)) + "\n")

    def save_checkpoint(self, rounds: int, tensors: dict[str, Any]) -> Path:
        from safetensors.torch import save

        target = self.path / "checkpoints" / f"round-{rounds:06d}.safetensors"
        payload = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        write_atomically(target, payload)
        return target


def new_directory(path: Path | None, name: str) -> RunDirectory:
    """An empty one: as told, or under runs/ by name and time."""
    if path is None:
        path = _free(Path("runs") / f"{name.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}")
    elif path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--out {path} exists and is not an empty directory; name a new one.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None
    return RunDirectory(path)


def write_atomically(path: Path, content: bytes) -> None:
    """All or nothing, even if the machine stops in between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # as any new file; mkstemp's are its owner's alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _free(path: Path) -> Path:
    candidate, count = path, 1
    while candidate.exists():
        count += 1
        candidate = path.with_name(f"{path.name}-{count}")
    return candidate


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is not set is not written."""
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """JSON has no infinity: a figure that does not exist is null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
