"""Public files for a machine that lacks them: by name, checked on arrival."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data import sent, sources, weights
from gossamer.data.digest import digest, recorded
from gossamer.data.source import datasets
from gossamer.errors import UserError


def needed(**table: Any) -> list[str]:
    return sent.needed(datasets.parse(table))


def test_what_a_table_needs_is_named_once_and_nothing_that_comes_along() -> None:
    assert needed(kind="digits") == []
    assert needed(kind="dirac") == []
    assert needed(kind="mnist") == ["mnist"]
    assert needed(kind="mnist", pca=3, pca_from="fashion-mnist") == ["mnist", "fashion-mnist"]
    steps = [{"kind": "projection", "dimensions": 3, "public": {"kind": "fashion-mnist", "train_rows": 100}}]
    assert needed(kind="mnist", transform=[*steps, *steps]) == ["mnist", "fashion-mnist"]
    beside = [{"kind": "beside", "branches": [steps, ["unit-norm"]]}]
    assert needed(kind="mnist", transform=beside) == ["mnist", "fashion-mnist"]
    assert needed(kind="cifar10", transform=["pretrained"]) == ["cifar10", "efficientnet-lite2"]


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A small set under the name of a public one, with its digest on record."""
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 255, (6_000, 3, 32, 32), dtype=np.uint8),
        "y_train": np.zeros(6_000, np.int64),
        "x_test": rng.integers(0, 255, (1_500, 3, 32, 32), dtype=np.uint8),
        "y_test": np.zeros(1_500, np.int64),
    }
    known = {**recorded(), "arrays": {**recorded()["arrays"], "cifar10-part": digest(arrays)}}
    monkeypatch.setattr("gossamer.data.digest.recorded", lambda: known)
    monkeypatch.setattr("gossamer.data.sources.recorded", lambda: known)
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "cifar10_part.npz", **arrays)
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    return arrays


def test_a_set_goes_from_a_folder_to_another_machines_cache(tmp_path: Path, part: dict[str, Any]) -> None:
    assert not sent.is_here("cifar10-part")
    content = sent.as_bytes("cifar10-part", tmp_path / "data")
    kept = sent.take("cifar10-part", content)
    assert kept == tmp_path / "cache" / "cifar10_part.npz"
    assert sent.is_here("cifar10-part")
    found = sources.find("cifar10-part")
    assert np.array_equal(found.arrays["x_train"], part["x_train"])


def test_what_is_not_the_recorded_set_is_refused_and_not_kept(tmp_path: Path, part: dict[str, Any]) -> None:
    part["y_test"][0] = 1
    np.savez(tmp_path / "other.npz", **part)
    for content in ((tmp_path / "other.npz").read_bytes(), b"", b"PK"):
        with pytest.raises(UserError, match="is refused"):
            sent.take("cifar10-part", content)
    assert not sent.is_here("cifar10-part")
    with pytest.raises(UserError, match=r"efficientnet-lite0: what was sent is refused, sha256"):
        sent.take("efficientnet-lite0", b"weights")
    assert not sent.is_here("efficientnet-lite0")


def test_weights_are_here_where_their_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    assert not sent.is_here("efficientnet-lite0")
    (tmp_path / weights.KNOWN["efficientnet-lite0"].file).write_bytes(b"")
    assert sent.is_here("efficientnet-lite0")
