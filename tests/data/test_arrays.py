"""Arrays of records: memory, mapped files, scaling, components and shared rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.decomposition import PCA
from tests.support.refusals import expect_refusal

from gossamer.data import arrays as mapped
from gossamer.data.arrays import (
    at_most,
    by_block,
    fit_components,
    format_bytes,
    free_memory,
    gathered,
    is_large,
    is_mapped,
    joined,
    listed,
    project,
    resident,
    room_for,
    scale_records,
    share_rows,
    to_ranges,
    zeros,
)


def test_both_ends_are_allowed():
    assert [at_most("k", value, 5) for value in (1, 5)] == [1, 5]
    assert at_most("k", 0, 5, least=0) == 0


@pytest.mark.parametrize(("value", "least"), [(0, 1), (6, 1), (-1, 0)])
def test_beyond_them_the_sentence_names_key_value_and_range(value, least):
    with expect_refusal("data.rows", value, [least, 5]):
        at_most("data.rows", value, 5, least=least)


def test_many_or_long_names_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    said = listed([str(i) * 50 for i in range(10)] * 2)
    assert said.endswith(" and 12 more")
    assert len(said) < 500


def test_memory_is_known_and_what_exceeds_it_refused() -> None:
    assert 1e6 < free_memory() < 1e15
    assert 1e7 < resident() < 1e12 or not Path("/proc/self/statm").exists()
    assert [format_bytes(size) for size in (2.5e12, 22e9, 1e6, 500)] == ["2.5 TB", "22 GB", "1 MB", "500 B"]
    room_for("x", 1.0)
    with expect_refusal(key="x", names="1e+06", remedy=True):
        room_for("x", 1e18)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(mapped, "BLOCK", 7)
    x = zeros("t", (100, 3), mapped=True)
    x[:] = np.random.default_rng(0).normal(size=(100, 3))
    return x


def test_what_is_computed_from_mapped_numbers_is_what_memory_gives(numbers: Any) -> None:
    plain = np.array(numbers)
    assert is_mapped(numbers)
    assert not is_mapped(plain)
    rng = np.random.default_rng(1)
    some = rng.permutation(100)[:50]
    for rows in (some, np.sort(some), np.arange(20, 60), np.arange(100) % 3 == 0, np.repeat(some, 2)):
        found = gathered(numbers, rows)
        np.testing.assert_array_equal(found, plain[rows])
        assert is_mapped(found)
    assert len(gathered(numbers, np.zeros(0, np.int64))) == 0
    doubled = by_block(numbers, lambda x: np.hstack([x, 2 * x]))
    np.testing.assert_array_equal(doubled, np.hstack([plain, 2 * plain]))
    both = joined([numbers, plain[:9], numbers[:11]])
    np.testing.assert_array_equal(both, np.concatenate([plain, plain[:9], plain[:11]]))
    assert is_mapped(doubled)
    assert is_mapped(both)
    assert share_rows(numbers, plain[50:53]) == share_rows(plain, plain[50:53])
    assert not is_mapped(numbers + 1)
    assert not is_mapped(numbers[some])


def test_rows_that_follow_each_other_are_not_copied(numbers: Any) -> None:
    assert np.shares_memory(gathered(numbers, np.arange(20, 60)), numbers)
    assert not np.shares_memory(gathered(numbers, np.array([20, 22])), numbers)


def test_no_file_has_a_name_and_nobody_else_may_open_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    modes: list[int] = []
    real = np.memmap

    def looked_at(file: Any, *args: Any, **options: Any) -> Any:
        modes.append(os.fstat(file.fileno()).st_mode & 0o777)
        assert os.fstat(file.fileno()).st_nlink == 0
        assert os.fstat(file.fileno()).st_dev == tmp_path.stat().st_dev
        return real(file, *args, **options)

    monkeypatch.setattr(mapped.np, "memmap", looked_at)
    x = zeros("t", (1000, 3), mapped=True)
    assert modes == [0o600]
    assert not list(tmp_path.iterdir())
    assert not x.any()


def test_a_large_part_of_the_free_memory_is_what_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "free_memory", lambda: 1200.0)
    assert not is_large(120)
    assert is_large(121)
    assert not is_mapped(zeros("t", (10, 3), mapped=None))
    assert is_mapped(zeros("t", (11, 3), mapped=None))
    assert not is_mapped(zeros("t", (11, 3), mapped=False))


def test_a_disk_without_room_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with expect_refusal(key="data.mapped", names="4e+06 TMPDIR", remedy=True):
        zeros("t", (10**15, 1000), mapped=True)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "posix_fallocate", full)
    with expect_refusal(key="data.mapped", names="room", remedy=True):
        zeros("t", (10, 3), mapped=True)


# Trains on a small file first: what a process takes for itself, and for a batch, is then there.
CHILD = """
import json, sys, threading, time
import gossamer

settings, small, large, mapped = json.loads(sys.argv[1])

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

def peak(path):
    found, done = [anonymous()], threading.Event()
    def watch():
        while not done.wait(0.005):
            found.append(anonymous())
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        gossamer.run(settings, {"data.path": path, "data.mapped": mapped}, out=path + f"-{mapped}")
    finally:
        done.set()
        watcher.join()
    return max(found)

before = peak(small)
print(peak(large) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what is anonymous")
def test_a_run_does_not_hold_the_numbers_of_a_mapped_file(tmp_path: Path) -> None:
    """240 MB of numbers more: mapped, a run takes less than a quarter of that for them; in memory, more than all."""
    width, rows, few, many = 100, 50_000, 4, 16
    for name, batches in (("small", few), ("large", many)):
        _write(tmp_path / name, batches, rows, width)
    settings = {
        "name": "large", "nodes": 4, "rounds": 10, "seed": 1,
        "data": {
            "kind": "parquet", "path": "", "label": "y", "classes": 2, "records": 200_000,
            "columns": {f"c{i}": [0, 255] for i in range(width)},
        },
        "model": {"kind": "softmax"}, "topology": {"kind": "ring"}, "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "sampling": {"kind": "poisson", "rate": 0.002}},
    }  # fmt: skip
    grown = {}
    for choice in (True, False):
        said = json.dumps([settings, str(tmp_path / "small"), str(tmp_path / "large"), choice])
        child = subprocess.run([sys.executable, "-c", CHILD, said], check=False, capture_output=True, text=True)
        assert child.returncode == 0, child.stderr
        grown[choice] = int(child.stdout.split()[-1])
    more = 4 * width * rows * (many - few)
    assert grown[True] < more / 4
    assert grown[False] > more


def _write(path: Path, batches: int, rows: int, width: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    schema = pa.schema([*((f"c{i}", pa.uint8()) for i in range(width)), ("y", pa.int8())])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for _ in range(batches):
            x = rng.integers(0, 256, (width, rows), dtype=np.uint8)
            label = pa.array((x[0] > 127).astype(np.int8))
            file.write_table(pa.table([*map(pa.array, x), label], schema=schema))


def numbers_overlap(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.normal(size=(rows, 5)).astype(np.float32)


def small(values: int, columns: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Few different rows, some far more common than others."""
    weights = 1 / np.arange(1, values + 1)

    def draw(rng: np.random.Generator, rows: int) -> np.ndarray:
        return rng.choice(values, size=(rows, columns), p=weights / weights.sum()).astype(np.float32)

    return draw


TABLES = {
    "binary": small(2, 6), "some repeat": small(4, 6), "few repeat": small(5, 9), "hardly any": small(8, 10),
    "numbers": numbers_overlap,
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("rows", [(40, 40), (300, 60), (100, 2000)])
def test_sets_of_the_same_origin_are_let_pass(name: str, rows: tuple[int, int]) -> None:
    """Twenty of each: four deviations twice over leave less than one in a thousand to be refused in all."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert not share_rows(*(TABLES[name](rng, count) for count in rows)), seed


@pytest.mark.parametrize("name", ["few repeat", "hardly any", "numbers"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_copied_rows_are_found(name: str, share: float) -> None:
    rng = np.random.default_rng(1)
    ours, theirs = TABLES[name](rng, 1000), TABLES[name](rng, 1000)
    theirs[: int(share * 1000)] = ours[: int(share * 1000)]
    assert share_rows(ours, rng.permutation(theirs))
    assert share_rows(theirs, ours)


def test_one_copy_among_numbers_is_one_too_many() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = numbers_overlap(rng, 500), numbers_overlap(rng, 500)
    theirs[77] = ours[3]
    assert share_rows(ours, theirs)
    theirs[77] *= 1.0001  # changed copies are out of reach
    assert not share_rows(ours, theirs)


def test_repeating_ones_own_records_hides_nothing() -> None:
    rng = np.random.default_rng(3)
    ours = numbers_overlap(rng, 400)
    fresh = numbers_overlap(rng, 360)
    for copied in (np.concatenate([fresh, ours[:40]]), ours[:200]):
        assert share_rows(np.repeat(ours, 2, axis=0), copied)


def test_the_sign_of_zero_the_type_and_the_shape_do_not_matter() -> None:
    ours = numbers_overlap(np.random.default_rng(4), 50)
    ours[0, 0] = 0.0
    theirs = numbers_overlap(np.random.default_rng(5), 50)
    theirs[7] = ours[0]
    theirs[7, 0] = -0.0
    assert share_rows(ours, theirs.astype(np.float64))
    assert share_rows(ours.reshape(50, 1, 5), theirs.reshape(50, 1, 5))
    assert not share_rows(ours, theirs[:0])
    assert not share_rows(ours, theirs[:, :4])


def records(rows, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, 6)) * [5, 3, 2, 1, 0.5, 0.1] + 7).astype(np.float32)


@pytest.mark.parametrize("rows", [40, 25_000])  # in one block, and in several
def test_components_are_those_of_scikit_learn(rows):
    x = records(rows)
    mean, basis = fit_components(x, 3)
    theirs = PCA(3, svd_solver="full").fit(x.astype(np.float64))
    np.testing.assert_allclose(mean, theirs.mean_, rtol=1e-5)
    np.testing.assert_allclose(np.abs(np.sum(basis * theirs.components_, axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(
        np.abs(project(x[:5], mean, basis)), np.abs(theirs.transform(x[:5])), rtol=1e-2, atol=1e-2
    )


def test_the_largest_entry_of_a_direction_is_positive_so_signs_are_the_same_everywhere():
    for seed in range(4):
        _, basis = fit_components(records(60, seed), 6)
        assert (basis[np.arange(6), np.abs(basis).argmax(1)] > 0).all()


def test_images_are_flattened_and_all_components_keep_distances():
    x = records(30).reshape(30, 1, 2, 3)
    mean, basis = fit_components(x, 6)
    found = project(x, mean, basis)
    assert found.dtype == np.float32
    flat = x.reshape(30, -1)
    np.testing.assert_allclose(np.linalg.norm(found[0] - found[1]), np.linalg.norm(flat[0] - flat[1]), rtol=1e-4)


tables = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1e6, 1e6, width=32)
)


@settings(deadline=None, max_examples=200)
@given(tables)
def test_unit_ball_in_float32_and_in_float64(x):
    ball = scale_records(x, "unit-ball", False)
    biased = scale_records(ball, "none", True)
    for scaled in (ball, biased):
        assert scaled.dtype == np.float32
        assert (np.linalg.norm(scaled.astype(np.float64), axis=1) <= 1).all()
        assert (np.linalg.norm(scaled, axis=1) <= 1).all()
    norms = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    assert np.allclose(ball, x / np.maximum(1, norms), rtol=1e-6, atol=1e-7)
    assert np.allclose(biased[:, -1], 2**-0.5)


def test_unit_ball_treats_every_record_by_itself():
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    alone = np.concatenate([scale_records(row[None], "unit-ball", False) for row in x])
    assert np.array_equal(scale_records(x, "unit-ball", False), alone)


def test_ranges():
    x = np.array([[10, 5], [20, 7]], np.float32)
    assert to_ranges(x, ["a", "b"], {"a": [0, 20]}).tolist() == [[0.5, 5], [1, 7]]


def test_every_record_goes_to_the_sphere_and_zeros_stay() -> None:
    x = np.array([[3.0, 4.0], [1e-30, 0.0], [0.0, 0.0], [1e30, 1e30]], np.float32)
    norms = np.linalg.norm(scale_records(x, "unit-sphere", False).astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 0, 1], atol=1e-6)
    assert (norms <= 1).all()


def test_a_bias_keeps_the_ball_or_stands_outside() -> None:
    x = scale_records(np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32), "unit-sphere", False)
    inside, outside = scale_records(x, "none", True), scale_records(x, "none", "outside")
    assert inside.shape == outside.shape == (50, 4)
    assert (np.linalg.norm(inside.astype(np.float64), axis=1) <= 1).all()
    np.testing.assert_allclose(inside[:, :3] * np.sqrt(2), x, rtol=1e-6)
    np.testing.assert_array_equal(outside[:, :3], x)
    assert (outside[:, 3] == 1).all()
