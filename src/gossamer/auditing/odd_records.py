"""Records that a careful attacker would try: extreme, degenerate, cancelling, not finite, and ordinary ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_EVERY_DECADE = [10.0**k for k in range(-30, 31)]
_SOME_DECADES = [1e-30, 1e-23, 1e-12, 1e-6, 1e-3, 1.0, 1e2, 1e3, 1e5, 1e8, 1e12, 1e20, 1e30]
_CANCELLING = [1.0, 1e2, 1e3, 1e4, 1e6]
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class OddRecord:
    x: Tensor  # of the shape of a record
    y: Tensor  # its target
    kind: str  # for people


def odd_records(known_x: Tensor, known_y: Tensor, classes: int | None, seed: int) -> list[OddRecord]:
    """Records of the shape of the known ones (N, …), in a fixed order in which kinds and sizes alternate.

    Features that are whole numbers are places of a table: only places that occur are tried. Labels are all classes in
    turn; targets that are numbers are tried from 1e-30 to 1e30 and not finite, like features.
    """
    chance = torch.Generator().manual_seed(seed)
    features = list(_features(known_x, chance))
    order = torch.randperm(len(features), generator=chance).tolist()
    targets = _targets(known_y, classes)
    found = [
        OddRecord(
            features[i][0], targets[n % len(targets)][0], f"{features[i][1]}{targets[n % len(targets)][1]}"
        )
        for n, i in enumerate(order)
    ]
    if classes is None:  # an ordinary record with an odd target
        found += [OddRecord(known_x[0], y, f"an ordinary record{told}") for y, told in targets]
    return found


def _features(known: Tensor, chance: torch.Generator) -> Iterator[tuple[Tensor, str]]:
    shape, first = known.shape[1:], known[0]
    some = torch.randperm(len(known), generator=chance)[:8].tolist()
    for n in some:
        yield known[n].clone(), "an ordinary record"
    if not known.is_floating_point():
        for place in sorted(set(known.flatten().tolist()))[:16]:
            yield torch.full_like(first, place), f"a record at place {place}"
        return

    def normal() -> Tensor:
        return torch.randn(shape, generator=chance).to(known)

    for size in _EVERY_DECADE:
        yield normal() * size, f"normal numbers of size {size:.0e}"
    for size in _SOME_DECADES:
        yield torch.full_like(first, size), f"{size:.0e} everywhere"
        yield torch.full_like(first, -size), f"-{size:.0e} everywhere"
        yield _spike(torch.zeros_like(first), size, chance), f"{size:.0e} in one place, else 0"
        yield known[some[0]] * size, f"an ordinary record times {size:.0e}"
        yield _spike(known[some[-1]], size, chance), f"an ordinary record with {size:.0e} in one place"
    for size in _CANCELLING:
        for unlike in (1e-3, 1e-6):
            yield size * (1 + unlike * normal()), f"{size:.0e} nearly everywhere (1 ± {unlike:.0e})"
            yield _halves(normal() * size, -1, unlike, chance), f"halves that cancel, of size {size:.0e}"
            yield _halves(normal() * size, 1, unlike, chance), f"halves alike, of size {size:.0e}"
        yield _halves(normal() + size, -1, 1e-3, chance), f"halves that cancel, around {size:.0e}"
    for size in (1e-45, 1e-38, _LARGEST):
        yield torch.full_like(first, size), f"{size:.0e} everywhere"
    yield torch.zeros_like(first), "zeros"
    for bad in (float("nan"), float("inf"), float("-inf")):
        yield torch.full_like(first, bad), f"{bad} everywhere"
        yield _spike(torch.zeros_like(first), bad, chance), f"{bad} in one place, else 0"
        yield _spike(known[some[0]], bad, chance), f"an ordinary record with {bad} in one place"


def _spike(like: Tensor, size: float, chance: torch.Generator) -> Tensor:
    flat = like.clone().flatten()
    if flat.numel():
        flat[int(torch.randint(flat.numel(), (), generator=chance))] = size
    return flat.view(like.shape)


def _halves(values: Tensor, sign: int, unlike: float, chance: torch.Generator) -> Tensor:
    """The second half of the first axis is the first one again, or its opposite, up to a relative `unlike`.

    Sums over positions then cancel to a small rest, in which every rounding shows.
    """
    if values.ndim == 0 or len(values) < 2:
        return values
    half = len(values) // 2
    noise = 1 + unlike * torch.randn(values[:half].shape, generator=chance).to(values)
    return torch.cat([values[:half], sign * values[:half] * noise, values[2 * half :]])


def _targets(known: Tensor, classes: int | None) -> list[tuple[Tensor, str]]:
    if classes is not None:
        return [(known.new_tensor(label), f", labelled {label}") for label in range(classes)]
    like = known[0]
    if not known.is_floating_point():
        return [(known.new_tensor(value), "") for value in sorted(set(known.flatten().tolist()))[:16]]
    sizes = [0.0, 1.0, -1.0, 1e-30, 1e-6, 1e3, -1e6, 1e12, -1e30]
    odd = [(torch.full_like(like, size), f", target {size:.0e}") for size in sizes]
    odd += [(torch.full_like(like, bad), f", target {bad}") for bad in (float("nan"), float("inf"))]
    return [(like.clone(), ""), *odd]
