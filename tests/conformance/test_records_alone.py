"""A record moves the sum it is in by its clip at most, and nothing else, whatever the module does, or it is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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

import gossamer
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


def trained(seed: int, folder: Path) -> str:
    """A run of the module on records of which some are strange: the words with which it is refused, if it is."""
    module, kinds = grammar(seed)
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(40, FEATURES, generator=draw), torch.randint(CLASSES, (40,), generator=draw)
    for place, kind in enumerate(kinds):
        x[7 * place + 2] = strange_record(*kind, draw).nan_to_num(0.0, 1e30, -1e30)  # data must be numbers
    asked = {
        "nodes": 2,
        "rounds": 2,
        "topology.kind": "complete",
        "privacy.sampling": {"kind": "poisson", "rate": 0.5},
    }
    data = gossamer.Data((x, y), classes=CLASSES, count=20)
    try:
        outcome = gossamer.run("quickstart", asked, data=data, module=module, out=folder / str(seed))
    except UserError as refused:
        return str(refused)
    assert bool(outcome.points.isfinite().all())
    return ""


def test_no_random_module_and_record_ends_a_run(tmp_path: Path) -> None:
    """Each is trained to the end, or refused before anything is written."""
    ways = run_through(range(300, 308), tmp_path)
    assert set(ways) == {"refused", "trained"}


def run_through(seeds: range, folder: Path) -> Counter[str]:
    ways: Counter[str] = Counter()
    for seed in seeds:
        refused = trained(seed, folder)
        assert not refused or refused.startswith(("module", "model")), refused
        assert bool(refused) != (folder / str(seed)).exists()
        ways["refused" if refused else "trained"] += 1
    return ways


@pytest.mark.slow
def test_nor_do_a_hundred(tmp_path: Path) -> None:
    assert min(run_through(range(400, 500), tmp_path).values()) > 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_two_thousand_random_modules_and_records(part: int) -> None:
    ways = run_cases(range(1000 + 350 * part, 1350 + 350 * part))
    assert min(ways.values()) > 30  # every way is met often


def test_the_grammar_has_everything() -> None:
    assert len(STEPS) == len(APART) + len(TOGETHER)
