"""The run directory: append-only files, so that the live page, the report and a resumed run read the same."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gossamer.accounting.runs import MOST_NODES
from gossamer.errors import UserError
from gossamer.results.files import read_metrics, read_object, read_text
from gossamer.results.packing import pack


class RunDirectory:
    """The files of a run: configuration, manifest, topology, metrics, ledgers, checkpoints, certificate."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """A new directory; `path` must not exist or be empty, so that nothing is ever overwritten."""
        make_empty(path)
        (path / "checkpoints").mkdir(exist_ok=True)
        return cls(path)

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """The directory of a run that was stopped."""
        missing = next(
            (name for name in ("config.toml", "manifest.json") if not os.path.lexists(path / name)), None
        )
        if missing is not None:
            raise UserError(
                f"--resume {path} has no {missing}: no run had begun there; start one with `gossamer run --out`."
            )
        if os.path.lexists(path / "certificate.json"):
            raise UserError(f"--resume {path} is a finished run; nothing is left to do.")
        read_text(path / "config.toml")  # damage shows before anything is planned
        read_manifest(path)
        try:
            (path / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{path / 'checkpoints'} cannot be used: {error.strerror}.") from None
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def read_manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    def write_config(self, config: dict[str, Any]) -> None:
        write_atomically(self.path / "config.toml", config_text(config).encode())

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(pack(finite(content)), indent=2, ensure_ascii=False)
        write_atomically(self.path / name, f"{text}\n".encode())

    def write_text(self, name: str, content: str) -> None:
        write_atomically(self.path / name, content.encode())

    def append_metrics(self, row: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self.path / "metrics.jsonl", flags, 0o644)
        with open(fd, "a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row)) + "\n")

    def trim_metrics(self, rounds: int) -> None:
        """Forget evaluations after so many rounds, and a line that was cut off: those rounds are done again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            kept = [json.dumps(row) + "\n" for row in read_metrics(path) if row["round"] <= rounds]
            write_atomically(path, "".join(kept).encode())

    def last_metrics(self) -> dict[str, Any]:
        """The last evaluation; empty where there is none yet."""
        rows = read_metrics(self.path / "metrics.jsonl")
        return rows[-1] if rows else {}


def config_text(config: dict[str, Any]) -> str:
    """A whole configuration as TOML, as `config.layers.stored` reads it."""
    return tomli_w.dumps(without_none(config))


def read_manifest(path: Path) -> dict[str, Any]:
    """Of the run in this directory, with what every command asks of it."""
    file = path / "manifest.json"
    shapes = {"run": str, "name": str, "started": str, "key": str, "data": dict, "files": dict}
    shapes["ledgers_here"] = list
    manifest = {"resumed": [], **read_object(file, *shapes)}
    for key, kind in {**shapes, "resumed": list}.items():
        if type(manifest[key]) is not kind:
            raise UserError(f"{file} is damaged: its {key!r} is not a {kind.__name__}.")
    try:
        ledgers_here(manifest)
    except ValueError:
        raise UserError(
            f"{file} is damaged: its 'ledgers_here' is not a list of [first, last] nodes."
        ) from None
    if any(not isinstance(s, dict) or type(s.get("lost_draws")) is not int for s in manifest["resumed"]):
        raise UserError(f"{file} is damaged: its 'resumed' is not a list of stops.")
    return manifest


def ledgers_here(manifest: Mapping[str, Any]) -> list[range]:
    """The nodes of every ledger of the directory, in their order."""
    blocks = []
    for entry in manifest.get("ledgers_here", []):
        first, last = entry if type(entry) is list and len(entry) == 2 else (None, None)
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < MOST_NODES:
            raise ValueError("not nodes")
        blocks.append(range(first, last + 1))
    return sorted(blocks, key=lambda nodes: nodes.start)


def make_empty(path: Path) -> None:
    """A directory to write into; never one that holds something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--out {path} exists and is not an empty directory; name a new one.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None


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


def without_none(value: Any) -> Any:
    """TOML has no null: a key that is not set is not written."""
    if isinstance(value, dict):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """JSON has no infinity: a figure that does not exist is null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
