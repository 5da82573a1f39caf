"""A record moves the sum it is in by its clip at most, and nothing else, whatever the module does, or it is refused."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.support.mixing import (
    APART,
    CLASSES,
    FEATURES,
    MIXING,
    STEPS,
    TOGETHER,
    Standardised,
    grammar,
    strange_record,
    worst_move,
)  # fmt: skip
from tests.support.per_sample import cross_entropy
from torch import nn

from gossamer.errors import UserError
from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack

SLACK = 1 + 1e-6


def tried(module: nn.Module, records: list[tuple[str, float]], seed: int) -> tuple[float, str]:
    """The worst move over these records, and by which way; or (0, "refused")."""
    draw = torch.Generator().manual_seed(seed)
    points = 0.3 * torch.randn(2, ParameterStack(module).dim, generator=draw)
    lots = torch.randn(2, 4, FEATURES, generator=draw)
    targets = torch.randint(0, CLASSES, (2, 4), generator=draw)
    kernel = ClippedSum(module, cross_entropy)
    kernel.expect(3, varies=True)
    worst = 0.0
    try:
        kernel.try_on(lots, targets)  # type: ignore[attr-defined]
        for kind, size in records:
            record = strange_record(kind, size, draw)
            worst = max(worst, worst_move(kernel, points, lots, targets, record, seed % CLASSES))
    except UserError as refused:
        return 0.0, "refused" if str(refused).startswith("model: ") else "refused for another reason"
    return worst, "book-kept" if isinstance(kernel.method, BookKeeping) else "by itself"  # type: ignore[attr-defined]


RECORDS = [("normal", 1e5), ("constant", 3.0), ("spike", 1e30), ("nan", 1.0), ("inf", 1.0), ("normal", 1e-30)]


@pytest.mark.parametrize("make", MIXING)
@pytest.mark.parametrize("training", [True, False])
def test_modules_that_mix_move_nothing_by_more_than_a_clip(make: type[nn.Module], training: bool) -> None:
    torch.manual_seed(0)
    worst, way = tried(make().train(training), RECORDS, seed=1)
    assert worst <= SLACK
    if make is Standardised:
        assert way == "book-kept"


def run_cases(seeds: range) -> Counter[str]:
    ways: Counter[str] = Counter()
    for seed in seeds:
        module, records = grammar(seed)
        worst, way = tried(module, records, seed)
        assert worst <= SLACK, f"case {seed}: {module.steps} moved a sum by {worst} clips, {way}"
        ways[way] += 1
    return ways


def test_random_modules_and_records() -> None:
    ways = run_cases(range(25))
    assert set(ways) == {"refused", "book-kept", "by itself"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_two_thousand_random_modules_and_records(part: int) -> None:
    ways = run_cases(range(1000 + 350 * part, 1350 + 350 * part))
    assert min(ways.values()) > 30  # every way is met often


def test_the_grammar_has_everything() -> None:
    assert len(STEPS) == len(APART) + len(TOGETHER)
