"""How far a reader must walk to follow `gossamer run quickstart`: functions, files, and changes of room.

    python benchmarks/rooms.py

A room is a folder of the package, or a module at its root. Counted are first calls, in the order they happen; class
bodies, comprehensions and lambdas do not count, nor does what happens while a module is loaded.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType

import gossamer
from gossamer.cli import main

ROOT = str(Path(gossamer.__file__).parent) + os.sep
FUNCTION = 1  # inspect.CO_OPTIMIZED: a function's code, not a module's or a class'


class Walk:
    """The functions of ours that were called, in the order of their first calls."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or not code.co_flags & FUNCTION:
            return
        file, name = code.co_filename.removeprefix(ROOT), code.co_qualname
        if _while_importing(frame):
            return
        if "<" in name.replace("<locals>", "") or (file, name) in self.seen:
            return
        self.seen.add((file, name))
        self.files.append(file)


def _while_importing(frame: FrameType) -> bool:
    """Is a module of ours being loaded further up? What decorators do then is no part of the way."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(ROOT):
            return True
        above = above.f_back
    return False


def changes(places: list[str]) -> int:
    return sum(a != b for a, b in itertools.pairwise(places))


def run() -> None:
    walk = Walk()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.argv = ["gossamer", "run", "quickstart"]
        sys.setprofile(walk)
        try:
            main()
        except SystemExit:
            pass
        finally:
            sys.setprofile(None)
    rooms = [file.split(os.sep)[0] for file in walk.files]
    entered = collections.Counter(b for a, b in itertools.pairwise(walk.files) if a != b)
    print(
        f"\n{len(walk.seen)} functions in {len(set(walk.files))} files; "
        f"{changes(walk.files)} changes of file, {changes(rooms)} changes of room"
    )
    print("entered most often: " + ", ".join(f"{file} {count}" for file, count in entered.most_common(8)))


if __name__ == "__main__":
    run()
