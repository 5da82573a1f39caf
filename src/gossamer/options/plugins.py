"""Parts from outside: modules that register what they have.

Either a package names its module in the entry-point group `gossamer.plugins`,

    [project.entry-points."gossamer.plugins"]
    mine = "my_package.parts"

or it is one file, `gossamer --plugin mine.py …`, `gossamer.plugin("mine.py")` or GOSSAMER_PLUGINS=mine.py: the
environment carries its name to the processes of a comparison and the ranks of a run.

The modules are imported when a kind is asked for that is not ours, or when all kinds are listed. A package that cannot
be imported stops no command that does not need it: it is remembered here, and named where a kind is missing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from types import ModuleType

from gossamer.errors import UserError

GROUP, FILES = "gossamer.plugins", "GOSSAMER_PLUGINS"


@dataclass
class _Loaded:
    done: bool = False
    broken: list[str] = field(default_factory=list)


_LOADED, _LOCK = _Loaded(), RLock()


def load_plugins() -> None:
    """Import what other packages bring, once in a process. Never fails: see `broken_plugins`."""
    with _LOCK:
        if _LOADED.done:
            return
        _LOADED.done = True  # before the first: a plug-in may itself ask for a kind
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: (_package(entry), entry.name)):
            try:
                entry.load()
            except (Exception, SystemExit) as error:
                _LOADED.broken.append(_sentence(entry, error))
        for name in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
            try:
                _run(Path(name))
            except (Exception, SystemExit) as error:
                _LOADED.broken.append(f"The plug-in {name} could not be loaded ({_why(error)}); fix it.")


def plugin(path: Path | str) -> ModuleType:
    """The parts that this file registers, here and in the processes that are started from here; once for each file."""
    file = Path(path).resolve()
    if not file.is_file():
        raise UserError(f"the plug-in {path} is no file; name a Python file that registers parts.")
    load_plugins()
    try:
        module = _run(file)
    except (Exception, SystemExit) as error:
        raise UserError(f"the plug-in {path} could not be loaded: {_why(error)}.") from error
    named = list(filter(None, os.environ.get(FILES, "").split(os.pathsep)))
    os.environ[FILES] = os.pathsep.join(dict.fromkeys([*named, str(file)]))
    return module


def _run(file: Path) -> ModuleType:
    name = f"gossamer_plugin_{file.stem}"
    known = sys.modules.get(name)
    return known if known is not None and known.__file__ == str(file) else run_file(file, name)


def run_file(file: Path, name: str) -> ModuleType:
    """A Python file as a module, at its name in sys.modules: pickles and dataclasses look there."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError("its name must end in .py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def broken_plugins() -> tuple[str, ...]:
    """A sentence for each plug-in that could not be loaded, with its package."""
    return tuple(_LOADED.broken)


def _sentence(entry: EntryPoint, error: BaseException) -> str:
    return (
        f"The plug-in {entry.name!r} of the package {_package(entry)} could not be loaded ({_why(error)}); fix or "
        "uninstall that package."
    )


def _why(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
