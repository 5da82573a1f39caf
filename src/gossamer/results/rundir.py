"""The run directory: its files, written all or nothing and read back with a sentence for what is damaged.

Files are append-only or written once, so the live page, the report and a resumed run read the same. A pipe or a device
in a file's place is refused before anything is read from it; a link to a regular file is followed.

A list of more than `MANY` entries of which most repeat others is stored as `{"values": […], "of": [[first, last,
which], …]}` (accounting/chain.py), with `"numbered": true` where every entry had its own index under `node`;
`read_object` returns the list, so digests and comparisons do not depend on it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from gossamer.accounting.chain import MOST_NODES, LedgerError, no_name_twice, open_to_read, packed, spread
from gossamer.accounting.chain import content as file_content
from gossamer.errors import UserError

if TYPE_CHECKING:
    from filelock import BaseFileLock

MANY = 1000  # entries: up to here a list is stored as it is
LOCK = "run.lock"


class RunDirectory:
    """The files of a run: configuration, manifest, topology, metrics, ledgers, checkpoints, certificate."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """Create a directory; `path` must not exist or be empty, so that nothing is ever overwritten."""
        make_empty(path)
        (path / "checkpoints").mkdir(exist_ok=True)
        return cls(path)

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """Open the directory of a run that was stopped."""
        for name in ("config.toml", "manifest.json"):
            if not os.path.lexists(path / name):
                raise UserError(f"--resume {path} has no {name}: no run had begun there; start one.")
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

    def write_config(self, config: dict[str, Any]) -> None:
        self.write_text("config.toml", config_text(config))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(pack(finite(content)), indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, content: str) -> None:
        write_atomically(self.path / name, content.encode())

    def append_metrics(self, row: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(self.path / "metrics.jsonl", flags, 0o644), "a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row)) + "\n")

    def trim_metrics(self, rounds: int) -> None:
        """Drop evaluations after so many rounds, which are done again, and a line that was cut off."""
        if (self.path / "metrics.jsonl").exists():
            rows = read_metrics(self.path / "metrics.jsonl")
            lines = [json.dumps(row) + "\n" for row in rows if row["round"] <= rounds]
            self.write_text("metrics.jsonl", "".join(lines))

    def last_metrics(self) -> dict[str, Any]:
        """Return the last evaluation; empty where there is none yet."""
        rows = read_metrics(self.path / "metrics.jsonl")
        return rows[-1] if rows else {}


class RunLock:
    """One writer per run directory, from `take` to `close`.

    The first process of a machine locks `run.lock`, each other one a file named by its nodes. So the processes of one
    run do not exclude each other. A process also takes the locks of those whose nodes it has now, so any two runs
    exclude each other, even while processes of the first are still ending; nodes of an earlier process that are now
    in two are refused with its ledger. The locks end with the process.
    """

    def __init__(self, directory: Path, nodes: range, *, whole: bool):
        """`nodes` are those of this process; `whole`: it is the machine's first process."""
        self._directory, self._nodes = directory, nodes
        self._name = LOCK if whole else f"run.{nodes.start}-{nodes.stop}.lock"
        self._open: list[BaseFileLock] = []

    def take(self) -> None:
        """Lock, or raise where another run has the lock."""
        busy = f"{self._directory} is being written by another run; wait until that one has ended."
        others = []
        for path in self._directory.glob("run.*-*.lock"):
            ends = re.fullmatch(r"run\.(\d+)-(\d+)\.lock", path.name)
            if ends and self._nodes.start <= int(ends[1]) and int(ends[2]) <= self._nodes.stop:
                others.append(path.name)
        try:
            for name in dict.fromkeys([self._name, *others]):
                self._open.append(lock_file(self._directory / name, busy))
        except UserError:
            self.close()
            raise

    def close(self) -> None:
        while self._open:
            self._open.pop().release()


def lock_file(path: Path, busy: str) -> BaseFileLock:
    """Lock a file, which is made if need be; a UserError with the sentence `busy` if another process has the lock."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(busy) from None
    except OSError as error:
        raise UserError(f"{path} cannot be locked: {error.strerror}.") from None
    return lock


def read_bytes(path: Path, at_most: int = -1) -> bytes:
    try:
        return file_content(path, at_most)
    except LedgerError as error:
        raise UserError(f"{error}.") from None


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read."""
    content = read_bytes(path)
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} can be read by others; chmod 600 it if nobody has read it yet.")
    return content


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: byte {error.start} is not UTF-8 text; put it back.") from None


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """Read a JSON object that has these keys, its packed lists as lists."""
    packed_object = _parse(path, read_text(path))
    try:
        value = unpack(packed_object)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: a list of its nodes is not one ({error}); put it back.") from None
    for key in keys:
        if key not in value:
            raise UserError(f"{path} is damaged: it has no {key!r}; put it back.")
    return value


def read_metrics(path: Path, *, to_the_end: bool = False) -> list[dict[str, Any]]:
    """Read the complete lines of metrics.jsonl; the last may be cut off unless the run is over (`to_the_end`)."""
    if not path.exists():
        return []
    *lines, rest = read_text(path).split("\n")
    if to_the_end and rest:
        raise UserError(f"{path} line {len(lines) + 1} is damaged: it is cut off; put it back.")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        row = _parse(path, line, f" line {number}")
        for key, kind in (("round", int), ("not_private", dict)):
            if type(row.get(key, {})) is not kind:
                raise UserError(f"{path} line {number} is damaged: its {key!r} is not a {kind.__name__}; put it back.")
        rows.append(row)
    return rows


_MANIFEST: dict[str, type] = {
    "run": str, "name": str, "started": str, "key": str, "data": dict, "files": dict, "ledgers_here": list,
    "resumed": list,
}  # fmt: skip


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of the run in this directory."""
    file = path / "manifest.json"
    manifest = {"resumed": [], **read_object(file)}
    wrong = [key for key, kind in _MANIFEST.items() if type(manifest.get(key)) is not kind]
    if wrong:
        raise UserError(f"{file} is damaged: its {wrong[0]!r} is not a {_MANIFEST[wrong[0]].__name__}; put it back.")
    try:
        ledgers_here(manifest)
    except ValueError:
        raise UserError(f"{file} is damaged: its 'ledgers_here' is not a list of [first, last]; put it back.") from None
    if any(not isinstance(s, dict) or type(s.get("lost_draws")) is not int for s in manifest["resumed"]):
        raise UserError(f"{file} is damaged: its 'resumed' is not a list of stops; put it back.")
    return manifest


def ledgers_here(manifest: Mapping[str, Any]) -> list[range]:
    """Return the nodes of every ledger of the directory, in their order."""
    blocks = []
    for entry in manifest.get("ledgers_here", []):
        first, last = entry if type(entry) is list and len(entry) == 2 else (None, None)
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < MOST_NODES:
            raise ValueError("not nodes")
        blocks.append(range(first, last + 1))
    return sorted(blocks, key=lambda nodes: nodes.start)


def digest_of(path: Path) -> str:
    """sha256 of a file, which may be larger than the memory."""
    content = hashlib.sha256()
    try:
        with open_to_read(path) as file:
            while part := file.read(1 << 20):
                content.update(part)
    except LedgerError as error:
        raise UserError(f"{error}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return content.hexdigest()


def digest_of_object(value: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> str:
    """Return the digest of a JSON object's content, independent of its layout."""
    content = {key: part for key, part in value.items() if key not in without}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return what every ledger's first line names; stops and continuations come later."""
    return digest_of_object(manifest, without=("resumed",))


def config_text(config: dict[str, Any]) -> str:
    """Return a whole configuration as TOML, as `config.layers.stored` reads it."""
    return tomli_w.dumps(without_none(config))


def make_empty(path: Path) -> None:
    """Create a directory to write into; refuse one that holds something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--out {path} exists and is not an empty directory; name a new one.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None


def write_atomically(path: Path, content: bytes, mode: int = 0o644, *, new: bool = False) -> None:
    """Write all or nothing, even if the machine stops in between; an OSError names the file.

    A `new` file must not exist yet. A private one is never readable by others, not for a moment.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            (os.link if new else os.replace)(temporary, path)  # a link fails where there is a file
            sync_folder(path.parent)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # not the temporary one
        raise


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


RUNS = Path("runs")
OF_SITE = "run"  # a site's run directory, in its folder of a study


def free_path(name: str) -> Path:
    """Return a directory under runs/ that does not exist yet."""
    name = f"{name.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2)))
    return next(RUNS / one for one in names if not (RUNS / one).exists())


def without_none(value: Any) -> Any:
    """Drop keys without a value: TOML has no null."""
    if isinstance(value, dict):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """Replace infinities and NaN by None: JSON has neither."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value


def pack(content: Mapping[str, Any]) -> dict[str, Any]:
    """Store each repetitive long list among the values once per different entry."""
    return {key: _packed(value) if isinstance(value, list) else value for key, value in content.items()}


def unpack(content: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `pack`; raise ValueError for what `pack` cannot have written."""
    forms = ({"values", "of"}, {"values", "of", "numbered"})
    is_packed = {key: isinstance(value, dict) and set(value) in forms for key, value in content.items()}
    return {key: _unpacked(value) if is_packed[key] else value for key, value in content.items()}


def _packed(values: list[Any]) -> Any:
    if len(values) <= MANY:
        return values
    numbered = all(isinstance(one, dict) and one.get("node") == i for i, one in enumerate(values))
    entries = [{k: v for k, v in one.items() if k != "node"} for one in values] if numbered else values
    form = packed(entries, lambda one: json.dumps(one, sort_keys=True))
    if len(form["values"]) > len(values) // 2:
        return values
    return {**form, **({"numbered": True} if numbered else {})}


def _unpacked(form: dict[str, Any]) -> list[Any]:
    try:
        _, last, _ = form["of"][-1]
    except LookupError:
        raise ValueError("its 'of' is empty") from None
    if type(last) is not int or not MANY <= last < MOST_NODES:
        raise ValueError("its 'of' is not a list of runs")
    values = spread(form, range(last + 1))
    if not form.get("numbered"):
        return values
    return [{"node": i, **one} | {"node": i} for i, one in enumerate(values)]


def _parse(path: Path, text: str, where: str = "") -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=no_name_twice)
    except RecursionError:
        raise UserError(f"{path}{where} is damaged: its brackets are too deep; put it back.") from None
    except ValueError as error:
        raise UserError(f"{path}{where} is damaged: it is not JSON ({error}); put it back.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}{where} is damaged: it is not a JSON object but a {type(value).__name__}; put it back.")
    return value
