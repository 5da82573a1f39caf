"""Checkpoints: what some processes wrote, any others read."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.results import checkpoint

N = 7
X = torch.arange(N * 3.0).reshape(N, 3)


def facts(nodes: range) -> dict[str, Any]:
    return {
        "bytes_sent": 10 * len(nodes),
        "seconds": 1.0 + nodes.start,
        "ledgers": {i: [i, f"head {i}"] for i in nodes},
    }


def save(folder: Path, done: int, nodes: range, run: str = "mine", **more: torch.Tensor) -> Path:
    tensors = {"x": X[nodes.start : nodes.stop] + done, "t": torch.tensor(done), **more}
    return checkpoint.save(folder, nodes, N, tensors, run=run, round=done, **facts(nodes))


def blocks(cuts: list[int]) -> list[range]:
    edges = [0, *sorted(set(cuts)), N]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


cuts = st.lists(st.integers(1, N - 1), max_size=4)


@settings(max_examples=20, deadline=None)
@given(written=cuts, read=cuts)
def test_any_split_of_the_nodes_reads_what_any_other_wrote(
    tmp_path_factory: pytest.TempPathFactory, written: list[int], read: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("c")
    for nodes in blocks(written):
        save(folder, 5, nodes, public=torch.full((1, 4), 9.0))
    total = 0
    for nodes in blocks(read):
        found = checkpoint.load(folder, 5, nodes)
        assert torch.equal(found.tensors["x"], X[nodes.start : nodes.stop] + 5)
        assert int(found.tensors["t"]) == 5
        assert torch.equal(found.tensors["public"], torch.full((1, 4), 9.0))  # everyone's, not a node's
        assert found.ledgers == {i: (i, f"head {i}") for i in nodes}
        assert found.seconds == 1.0 + blocks(written)[-1].start  # the slowest
        total += found.bytes_sent
    assert total == 10 * N  # each block's bytes are counted once


def test_a_round_counts_only_where_all_nodes_are_found(tmp_path: Path) -> None:
    save(tmp_path, 2, range(N))
    save(tmp_path, 4, range(3))
    save(tmp_path, 4, range(3, N))
    save(tmp_path, 6, range(3))
    assert checkpoint.rounds_with(tmp_path, range(N), run="mine") == [2, 4]
    assert checkpoint.rounds_with(tmp_path, range(2), run="mine") == [2, 4, 6]
    checkpoint.drop_older(tmp_path, 4)
    assert checkpoint.rounds_with(tmp_path, range(2), run="mine") == [4, 6]


def test_another_runs_file_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, 2, range(N), run="theirs")
    with expect_refusal(key="round-000002.safetensors", names="belongs", remedy=True):
        checkpoint.rounds_with(tmp_path, range(N), run="mine")
    path.write_bytes(path.read_bytes()[:40])
    with expect_refusal(key="round-000002.safetensors", names="earlier", remedy=True):
        checkpoint.rounds_with(tmp_path, range(N), run="theirs")


def look(folder: Path) -> None:
    checkpoint.rounds_with(folder, range(N), run="mine")
    checkpoint.load(folder, 2, range(N))


def test_a_flipped_byte_anywhere_is_named_or_nothing_changed(tmp_path: Path) -> None:
    path = save(tmp_path, 2, range(N))
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        with expect_refusal(key="round-000002.safetensors"):
            look(tmp_path)
    path.write_bytes(whole)
    assert checkpoint.load(tmp_path, 2, range(N)).round == 2


def test_a_renamed_one_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 2, range(3))
    for name in ("round-000004.nodes-000-002.safetensors", "round-000002.nodes-003-005.safetensors"):
        path = path.rename(tmp_path / name)
        with expect_refusal(names="0 2"):
            checkpoint.rounds_with(tmp_path, range(3), run="mine")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_not_gone_on_from(tmp_path: Path, value: float) -> None:
    save(tmp_path, 2, range(N), momentum=torch.full((N, 2), value))
    with expect_refusal(key="round-000002.safetensors", names="momentum"):
        checkpoint.load(tmp_path, 2, range(N))


def test_padding_of_different_lengths_is_left_out(tmp_path: Path) -> None:
    save(tmp_path, 2, range(3), padded=torch.zeros(3, 5))
    save(tmp_path, 2, range(3, N), padded=torch.zeros(4, 6))
    assert "padded" not in checkpoint.load(tmp_path, 2, range(N)).tensors
    assert checkpoint.load(tmp_path, 2, range(2)).tensors["padded"].shape == (2, 5)
