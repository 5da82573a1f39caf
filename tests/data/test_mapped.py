"""Numbers in a file without a name: the same as in memory, nothing left behind, and memory that stays free."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data import arrays as mapped
from gossamer.data.arrays import by_block, gathered, is_large, is_mapped, joined, share_rows, zeros
from gossamer.errors import UserError


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


def test_no_file_has_a_name_and_nobody_else_may_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(UserError, match=r"need 4e\+06 TB in .*TMPDIR"):
        zeros("t", (10**15, 1000), mapped=True)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"no file of .* \(No space left on device\); name another folder"):
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
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not say what is anonymous"
)
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
        child = subprocess.run(
            [sys.executable, "-c", CHILD, said], check=False, capture_output=True, text=True
        )
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
