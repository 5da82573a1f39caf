"""A person moves the sum by its clip at most, with however many records, whatever the module does, or it is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from tests.support.mixing import CLASSES, FEATURES, grammar, strange_record
from tests.support.per_sample import cross_entropy
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.noise import Stream
from gossamer.kernels.persons import Persons
from gossamer.kernels.stack import ParameterStack

SLACK = 1 + 1e-5  # float32 sums of a thousand records


def clip(norms: Tensor) -> Tensor:
    return (1 / norms.clamp_min(1e-30)).clamp_max(1.0)


def moved(module: nn.Module, count: int, kinds: list[tuple[str, float]], seed: int, mean: bool) -> tuple[float, str]:
    """How far a person with so many records moves the sums of its node; ∞ if those of the other move at all."""
    draw = torch.Generator().manual_seed(seed)
    points = 0.3 * torch.randn(2, ParameterStack(module).dim, generator=draw)
    own = torch.stack([strange_record(*kinds[r % len(kinds)], draw) for r in range(count)])
    others = torch.randn(2, 6, FEATURES, generator=draw)
    x = torch.cat([others, torch.stack([own, torch.zeros_like(own)])], 1)
    y = torch.randint(0, CLASSES, x.shape[:2], generator=draw)
    counts = torch.tensor([[1, 2, 3, count], [4, 1, 1, 0]])
    of = torch.stack(
        [torch.repeat_interleave(torch.arange(4), torch.tensor(c)) for c in ([1, 2, 3, count], [4, 1, 1, count])]
    )
    there = torch.ones(x.shape[:2], dtype=torch.bool)
    there[1, 6:] = False
    gone, none = there.clone(), counts.clone()
    gone[0, 6:], none[0, 3] = False, 0
    kernel = ClippedSum(module, cross_entropy)
    kernel.expect(4, varies=False)
    try:
        kernel.try_on(x, y)
        sums = []
        for mask, own_counts in ((there, counts), (gone, none)):
            kernel.draw_from(Stream.seeded(5), 0, np.arange(2), 0)
            sums.append(kernel(points, x, y, mask, clip, persons=Persons(of, own_counts, mean))[0].double())
    except UserError:
        return 0.0, "refused"
    move = (sums[0] - sums[1]).norm(dim=1).nan_to_num(nan=torch.inf)
    way = "book-kept" if isinstance(kernel.method, BookKeeping) else "by itself"  # type: ignore[attr-defined]
    return float(move[0]) if move[1] == 0 else torch.inf, way


def test_some_random_modules_and_persons() -> None:
    for seed in (*range(8), 5444, 5624):
        module, kinds = grammar(seed)
        worst, way = moved(module, [1, 3, 30][seed % 3] if seed < 8 else 300, kinds, seed, bool(seed % 2))
        assert worst <= SLACK, f"case {seed}: {module.steps} moved a sum by {worst} clips, {way}"


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
@pytest.mark.parametrize("mean", [False, True])
def test_a_person_of_up_to_a_thousand_records_moves_a_sum_by_its_clip(count: int, mean: bool) -> None:
    torch.manual_seed(count)
    module = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    for kinds in ([("normal", 1.0)], [("normal", 1e6), ("constant", 3.0)], [("normal", 1.0), ("nan", 1.0)]):
        worst, way = moved(module, count, kinds, count, mean)
        assert (way, worst <= SLACK) == ("book-kept", True), (kinds, worst)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_five_hundred_random_modules_and_persons(part: int) -> None:
    ways: Counter[str] = Counter()
    for seed in range(5000 + 250 * part, 5250 + 250 * part):
        module, kinds = grammar(seed)
        count = 1000 if seed % 50 == 0 else [1, 2, 7, 40, 300][seed % 5]
        worst, way = moved(module, count, kinds, seed, bool(seed % 2))
        assert worst <= SLACK, f"case {seed}: {module.steps} moved a sum by {worst} clips, {way}"
        ways[way] += 1
    assert {"refused", "book-kept", "by itself"} <= set(ways)
