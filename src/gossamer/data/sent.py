"""Public files that another machine lacks: which a table [data] needs, and a copy of each, checked on arrival.

Only what has a recorded digest is sent. The user's own records have no name here.
"""

from __future__ import annotations

from pathlib import Path

from gossamer.data import fetch, sources, weights
from gossamer.data.source import Source


def needed(source: Source) -> list[str]:
    """The public sets and weights that its records are made of; none of what comes with the program."""
    names = [source.kind, source.pca_from]
    if source.transform:
        from gossamer.data.features.chain import public_names

        names += public_names(source.transform)
    return [name for name in dict.fromkeys(names) if name in sources.PUBLIC or name in weights.KNOWN]


def is_here(name: str) -> bool:
    """Without fetching it: in the folder of GOSSAMER_DATA, in the cache or in the system's."""
    folders = [folder for folder in (sources.user_folder(None), fetch.cache_dir()) if folder is not None]
    if name in weights.KNOWN:
        return any((folder / weights.KNOWN[name].file).exists() for folder in folders)
    entry = sources.PUBLIC[name]
    here = any(True for folder in folders for _ in sources.local_files(entry, folder))
    return here or bool(sources.system_folders(entry))


def as_bytes(name: str, data_dir: Path | None) -> bytes:
    return weights.find(name, data_dir)[0] if name in weights.KNOWN else sources.as_bytes(name, data_dir)


def take(name: str, content: bytes) -> Path:
    """Refused in a sentence where its digest is not the recorded one."""
    return weights.take(name, content) if name in weights.KNOWN else sources.take(name, content)
