"""Parts of other packages: entry points in the group `gossamer.plugins` name modules that register what they have.

    [project.entry-points."gossamer.plugins"]
    mine = "my_package.parts"

The modules are imported when a kind is asked for that is not ours, or when all kinds are listed. A package that cannot
be imported stops nobody who does not need it: it is remembered here, and named where a kind is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from threading import RLock

GROUP = "gossamer.plugins"


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


def broken_plugins() -> tuple[str, ...]:
    """A sentence for each plug-in that could not be loaded, with its package."""
    return tuple(_LOADED.broken)


def _sentence(entry: EntryPoint, error: BaseException) -> str:
    said = " ".join(str(error).split())[:200]
    why = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return (
        f"The plug-in {entry.name!r} of the package {_package(entry)} could not be loaded ({why}); mend or "
        "uninstall that package."
    )


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
