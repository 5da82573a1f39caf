"""Ways to damage one file of a run directory, and what the program says of the result."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.config.layers import stored
from gossamer.errors import UserError
from gossamer.results.report import read_runs
from gossamer.results.rundir import LOCK, RunDirectory
from gossamer.results.signatures import ADDED_LATER
from gossamer.results.verify import verify_run
from gossamer.training.manifest import read_own_manifest
from gossamer.training.run import Run

NOBODY = 65534


def cut(path: Path, other: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def extend(path: Path, other: Path, rng: random.Random) -> None:
    more = rng.choice([b"\0", b" ", b"{}\n", b"\n", path.read_bytes(), rng.randbytes(rng.randrange(1, 200))])
    path.write_bytes(path.read_bytes() + more)


def flip(path: Path, other: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


def swap(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(other.read_bytes())


def empty(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def retype(path: Path, other: Path, rng: random.Random) -> None:
    """Valid, and of another kind; of JSON objects also with one value of another kind."""
    kinds: list[Any] = [[1], None, 7, "text", {}, {"a": []}, [[]] * 3, -1.5, True]
    try:
        found = json.loads(path.read_bytes())
        key = rng.choice(sorted(found))
        kinds += [{**found, key: value} for value in kinds if value != found[key]]
    except (ValueError, TypeError, AttributeError):
        pass
    path.write_text(json.dumps(rng.choice(kinds)) + "\n")


def unreadable(path: Path, other: Path, rng: random.Random) -> None:
    path.chmod(0)


def link(path: Path, other: Path, rng: random.Random) -> None:
    """To itself at another place, to another run's, to nothing, to what never ends."""
    kept = path.parents[1] / f"kept-{path.name}"
    shutil.copy(path, kept)
    path.unlink()
    path.symlink_to(rng.choice([kept, other, path.with_name("nowhere"), Path("/dev/zero")]))


def pipe(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def gone(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


Way = Callable[[Path, Path, random.Random], None]
WAYS: tuple[Way, ...] = (cut, extend, flip, swap, empty, retype, unreadable, link, pipe, folder, gone)


def files_of(run: Path) -> list[str]:
    names = (str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    return sorted(name for name in names if name != LOCK)  # an empty file, which holds nothing


def finished(run: Path) -> None:
    """What `plan --ledger` and `report` read of it."""
    verify_run(run)
    read_runs([run])


def stopped(run: Path, parts: Any) -> None:
    """What `run --resume` reads of it, up to the next round."""
    config = stored(RunDirectory.resume(run).path / "config.toml")
    read_own_manifest(run, replace(parts.plan, asked=config))
    Run.resume(parts, run).close()


def noticed(look: Callable[[], None], run: Path) -> str | None:
    """The sentence; None where nothing was noticed. Anything but a sentence is raised."""
    root = os.geteuid() == 0
    try:
        if root:  # nothing is unreadable for root
            for path in (run, *run.rglob("*")):
                if not path.is_symlink():
                    os.chown(path, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        look()
    except UserError as error:
        sentence = str(error)
        assert "\n" not in sentence, sentence
        assert run.name in sentence, sentence
        return sentence
    finally:
        if root:
            os.seteuid(0)
    return None


def same_content(one: Path, two: Path) -> bool:
    """The same, but for what nobody reads: JSON's blanks, the last line's end, and what is added after the end."""
    if not one.is_file() or not os.access(one, os.R_OK) or one.stat().st_mode & 0o444 == 0:
        return False
    a, b = one.read_bytes(), two.read_bytes()
    if a == b or (one.suffix == ".jsonl" and a + b"\n" == b):
        return True
    try:
        left, right = json.loads(a), json.loads(b)
        skip = (*ADDED_LATER, "resumed")
        return {k: v for k, v in left.items() if k not in skip} == {k: v for k, v in right.items() if k not in skip}
    except (ValueError, AttributeError, RecursionError):
        return False
