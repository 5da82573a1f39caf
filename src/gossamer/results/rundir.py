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
    def create(cls, path: Path) -> RunDirectory:
        """A new directory; `path` must not exist or be empty, so that nothing is ever overwritten."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"--out {path} exists and is not an empty directory; name a new one.")
        try:
            (path / "ledger").mkdir(parents=True, exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None
        return cls(path)

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """The directory of a run that was stopped."""
        missing = next(
            (name for name in ("config.toml", "manifest.json") if not (path / name).is_file()), None
        )
        if missing is not None:
            raise UserError(
                f"--resume {path} has no {missing}: no run had begun there; start one with `gossamer run --out`."
            )
        if (path / "certificate.json").is_file():
            raise UserError(f"--resume {path} is a finished run; nothing is left to do.")
        (path / "ledger").mkdir(exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
        return cls(path)

    @property
    def ledger(self) -> Path:
        return self.path / "ledger"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def read_manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / 'manifest.json'} cannot be read: {error}.") from None
        return manifest

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

    def trim_metrics(self, rounds: int) -> None:
        """Forget evaluations after so many rounds, and a line that was cut off: those rounds are done again."""
        path = self.path / "metrics.jsonl"
        if path.is_file():
            whole = path.read_text(encoding="utf-8").split("\n")[:-1]
            kept = [line + "\n" for line in whole if json.loads(line)["round"] <= rounds]
            write_atomically(path, "".join(kept).encode())

    def last_metrics(self) -> dict[str, Any]:
        """The last evaluation; empty where there is none yet."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return dict(json.loads(lines[-1])) if lines else {}


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


def free_path(name: str) -> Path:
    """A directory under runs/ that is not there yet."""
    path = Path("runs") / f"{name.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
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
