"""Where a public set is looked for, its checks, and what happens when a copy is damaged or a source fails."""

import gzip
import hashlib
import struct

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.data import decode
from gossamer.data import origins as fetch
from gossamer.data.dataset import digest
from gossamer.data.load import datasets, get
from gossamer.data.origins import (
    ARCHIVES_MD5,
    ARRAYS_SHA256,
    Origin,
    Remote,
    canonical,
    check_archive,
    check_arrays,
    web,
)
from gossamer.data.public import Mnist
from gossamer.errors import UserError


def records(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (6, 2, 2), dtype=np.uint8),
        "y_train": np.array([0, 1, 0, 1, 0, 1], dtype=np.uint8),
        "x_test": rng.integers(0, 256, (2, 2, 2), dtype=np.uint8),
        "y_test": np.array([0, 1], dtype=np.uint8),
    }


class Shop:
    """A remote that counts its visitors and gives what it was told to."""

    def __init__(self, name, content):
        self.name, self.content, self.visits = name, content, 0

    def remote(self):
        return Remote(self.name, self.bring, decode.npz)

    def bring(self, folder):
        self.visits += 1
        if isinstance(self.content, Exception):
            raise self.content
        np.savez(folder / "shop.npz", **self.content)
        return folder / "shop.npz"


@pytest.fixture
def tiny(monkeypatch):
    """Register a set of eight records, sold by the given shops."""

    def register(*shops, **fields):
        entry = Origin("tiny", "tiny.npz", remotes=tuple(s.remote() for s in shops), **fields)
        monkeypatch.setattr(Mnist, "origin", entry)
        monkeypatch.setitem(ARRAYS_SHA256, "tiny", digest(canonical(records())))
        return entry

    return register


def write_idx(folder, raw):
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in decode.IDX_FILES.items():
        shape = raw[part].shape
        header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(header + raw[part].tobytes()))


def same(found):
    return all(np.array_equal(found.content[part], array) for part, array in records().items())


def test_the_users_folder_comes_first(tiny, tmp_path, monkeypatch):
    shop = Shop("shop", records())
    tiny(shop)
    np.savez_compressed(tmp_path / "tiny.npz", **records())
    found = Mnist.origin.find(tmp_path)
    assert same(found)
    assert found.source == "folder, tiny.npz"
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    assert Mnist.origin.find().source == "folder, tiny.npz"
    assert shop.visits == 0


def test_a_tampered_file_in_the_users_folder_is_refused(tiny, tmp_path):
    shop = Shop("shop", records())
    tiny(shop)
    tampered = records()
    tampered["y_train"][3] ^= 1
    np.savez(tmp_path / "tiny.npz", **tampered)
    with expect_refusal(key="tiny", names="tiny.npz", remedy=True) as caught:
        Mnist.origin.find(tmp_path)
    assert "\n" not in str(caught.value)
    assert shop.visits == 0


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all"])
def test_a_broken_file_in_the_users_folder_is_refused(tiny, tmp_path, content):
    shop = Shop("shop", records())
    tiny(shop)
    (tmp_path / "tiny.npz").write_bytes(content)
    with expect_refusal(key="tiny", names="tiny.npz"):
        Mnist.origin.find(tmp_path)
    assert shop.visits == 0


def test_a_truncated_download_of_ours_is_refused(tiny, tmp_path):
    tiny()
    np.savez(tmp_path / "whole.npz", **records())
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "tiny.npz").write_bytes(whole[: len(whole) // 2])
    with expect_refusal(key="tiny", names="tiny.npz"):
        Mnist.origin.find(tmp_path)


def test_a_folder_that_is_none(tiny, tmp_path, monkeypatch):
    tiny()
    with expect_refusal(key="data_dir", names="folder"):
        Mnist.origin.find(tmp_path / "nowhere")
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "nowhere"))
    with expect_refusal(key="GOSSAMER_DATA", names="folder"):
        Mnist.origin.find()


def test_a_download_is_kept_and_the_next_run_is_offline(tiny):
    shop = Shop("shop", records())
    tiny(shop)
    first, second = Mnist.origin.find(), Mnist.origin.find()
    assert same(first)
    assert same(second)
    assert (first.source, second.source, shop.visits) == ("shop", "cache", 1)
    assert [path.name for path in fetch.cache_dir().iterdir()] == ["tiny.npz"]


def test_failing_and_lying_shops_are_passed_over(tiny):
    closed = Shop("closed", fetch.FetchError("answered 404"))
    liar = Shop("liar", records(seed=1))
    good = Shop("good", records())
    tiny(closed, liar, good)
    assert Mnist.origin.find().source == "good"
    assert (closed.visits, liar.visits) == (1, 1)


def test_found_nowhere_is_one_sentence_with_every_reason(tiny, tmp_path):
    tiny(
        Shop("closed", fetch.FetchError("answered 404")),
        Shop("liar", records(seed=1)),
        Shop("full", OSError(28, "No space")),
    )
    with pytest.raises(UserError) as caught:
        Mnist.origin.find(tmp_path)
    message = str(caught.value)
    for part in (
        "'tiny' was found nowhere",
        "has no tiny.npz",
        "cache (does not hold it)",
        "closed (answered 404)",
    ):
        assert part in message
    assert "liar (sha256 " in message
    assert "full (No space)" in message
    assert "\n" not in message
    assert not fetch.cache_dir().exists()


def test_a_damaged_cache_is_replaced(tiny):
    shop = Shop("shop", records())
    tiny(shop)
    Mnist.origin.find()
    path = fetch.cache_dir() / "tiny.npz"
    path.write_bytes(path.read_bytes()[:100])
    assert Mnist.origin.find().source == "shop"
    assert Mnist.origin.find().source == "cache"
    assert shop.visits == 2


def test_a_cache_that_cannot_be_written_does_not_stop_the_run(tiny, tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file where the folder should be")
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "blocked"))
    tiny(Shop("shop", records()))
    found = Mnist.origin.find()
    assert same(found)
    assert found.note.startswith("not kept in the cache")
    with expect_refusal(key="mnist", names="cache"):
        get("mnist")


def test_get_copies_a_folder_into_the_cache(tiny, tmp_path):
    tiny()
    np.savez(tmp_path / "tiny.npz", **records())
    path = get("mnist", data_dir=tmp_path)
    assert path == fetch.cache_dir() / "tiny.npz"
    assert get("mnist") == path
    with expect_refusal(key="nope", names="mnist", remedy=True):
        get("nope")


def test_idx_files_in_a_folder_of_their_own(tiny, tmp_path):
    tiny(archives=(("tiny", decode.idx_folder),))
    write_idx(tmp_path / "tiny", records())
    assert same(Mnist.origin.find(tmp_path))
    write_idx(tmp_path / "tiny", records(seed=2))
    with expect_refusal(key="tiny", names="refused"):
        Mnist.origin.find(tmp_path)


def test_a_set_with_only_an_archive_checksum(tiny, tmp_path, monkeypatch):
    import hashlib

    entry = tiny(archives=(("tiny.tar.gz", decode.npz),))
    monkeypatch.delitem(ARRAYS_SHA256, "tiny")
    with (tmp_path / "tiny.tar.gz").open("wb") as file:
        np.savez(file, **records())
    md5 = hashlib.md5((tmp_path / "tiny.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setitem(ARCHIVES_MD5, "tiny.tar.gz", md5)
    assert same(Mnist.origin.find(tmp_path))

    # The cache keeps the archive, the only thing whose checksum is known, and checks it again.
    assert get("mnist", data_dir=tmp_path) == fetch.cache_dir() / "tiny.tar.gz"
    assert Mnist.origin.find().source == "cache"

    (tmp_path / "tiny.tar.gz").write_bytes((tmp_path / "tiny.tar.gz").read_bytes() + b" ")
    with expect_refusal(key="tiny", names="tiny.tar.gz"):
        Mnist.origin.find(tmp_path)
    (tmp_path / "tiny.tar.gz").unlink()
    np.savez(tmp_path / entry.file, **records())
    with expect_refusal(key="tiny", names="tiny.tar.gz"):
        Mnist.origin.find(tmp_path)


def test_every_public_set_has_a_checksum():
    origins = [kind.origin for kind in datasets.kinds.values() if kind.origin is not None]
    assert len(origins) >= 9
    for origin in origins:
        archives = {file for file, _ in origin.archives}
        assert origin.name in ARRAYS_SHA256 or archives & set(ARCHIVES_MD5)


def test_files_of_a_site(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(fetch, "download", lambda address, folder: fetched.append(address))
    assert web("https://a.b/c", ("x", "y"), tmp_path) == tmp_path
    assert fetched == ["https://a.b/c/x", "https://a.b/c/y"]


def tiny_digest():
    return {
        "x_train": np.arange(8, dtype=np.uint8).reshape(2, 2, 2),
        "y_train": np.array([1, 0], dtype=np.uint8),
        "x_test": np.zeros((0, 2, 2), dtype=np.uint8),
        "y_test": np.zeros(0, dtype=np.uint8),
    }


def test_digest_written_out_by_hand():
    state = hashlib.sha256()
    state.update(b"x_train |u1 (2, 2, 2)\n" + bytes(range(8)))
    state.update(b"y_train <i8 (2,)\n" + struct.pack("<2q", 1, 0))
    state.update(b"x_test |u1 (0, 2, 2)\n" + b"y_test <i8 (0,)\n")
    assert digest(canonical(tiny_digest())) == state.hexdigest()


def test_layout_in_memory_does_not_matter():
    other = {name: np.asfortranarray(array) for name, array in reversed(tiny_digest().items())}
    other["y_train"] = other["y_train"].astype(">i4")
    assert digest(canonical(other)) == digest(canonical(tiny_digest()))


@pytest.mark.parametrize("change", ["value", "order", "shape", "dtype", "label"])
def test_every_change_shows(change):
    raw = tiny_digest()
    if change == "value":
        raw["x_train"][0, 0, 0] ^= 1
    elif change == "order":
        raw["x_train"] = raw["x_train"][::-1]
    elif change == "shape":
        raw["x_train"] = raw["x_train"].reshape(2, 4, 1)
    elif change == "dtype":
        raw["x_train"] = raw["x_train"].astype(np.int16)
    else:
        raw["y_train"][0] = 2
    assert digest(canonical(raw)) != digest(canonical(tiny_digest()))


def test_mismatch_names_the_set_it_is_instead(monkeypatch):
    monkeypatch.setitem(ARRAYS_SHA256, "wanted", "0" * 64)
    with pytest.raises(ValueError, match=r"^sha256 [0-9a-f]{12}… instead of 000000000000…$"):
        check_arrays("wanted", tiny_digest())
    monkeypatch.setitem(ARRAYS_SHA256, "other", digest(canonical(tiny_digest())))
    with pytest.raises(ValueError, match="it holds other"):
        check_arrays("wanted", tiny_digest())


def test_incomplete_or_fractional_arrays_are_refused():
    raw = tiny_digest()
    with pytest.raises(ValueError, match="no array y_test"):
        canonical({name: raw[name] for name in ("x_train", "y_train", "x_test")})
    with pytest.raises(ValueError, match="x_train has dtype float64"):
        canonical({**raw, "x_train": raw["x_train"] / 2})


def test_archives_are_compared_with_their_md5(monkeypatch, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"hello")
    check_archive(tmp_path / "a.tar.gz")  # nothing recorded
    monkeypatch.setitem(ARCHIVES_MD5, "a.tar.gz", "5d41402abc4b2a76b9719d911017c592")
    check_archive(tmp_path / "a.tar.gz")
    (tmp_path / "a.tar.gz").write_bytes(b"hallo")
    with pytest.raises(ValueError, match=r"md5 .* instead of 5d41402abc4b"):
        check_archive(tmp_path / "a.tar.gz")
