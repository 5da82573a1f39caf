import hashlib
import struct

import numpy as np
import pytest

from gossamer.data.dataset import digest
from gossamer.data.sources import MismatchError, canonical, check_archive, check_arrays, recorded


def tiny():
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
    assert digest(canonical(tiny())) == state.hexdigest()


def test_layout_in_memory_does_not_matter():
    other = {name: np.asfortranarray(array) for name, array in reversed(tiny().items())}
    other["y_train"] = other["y_train"].astype(">i4")
    assert digest(canonical(other)) == digest(canonical(tiny()))


@pytest.mark.parametrize("change", ["value", "order", "shape", "dtype", "label"])
def test_every_change_shows(change):
    raw = tiny()
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
    assert digest(canonical(raw)) != digest(canonical(tiny()))


def test_mismatch_names_the_set_it_is_instead(monkeypatch):
    monkeypatch.setitem(recorded()["arrays"], "wanted", "0" * 64)
    with pytest.raises(MismatchError, match=r"^sha256 [0-9a-f]{12}… instead of 000000000000…$") as caught:
        check_arrays("wanted", tiny())
    assert caught.value.other is None
    monkeypatch.setitem(recorded()["arrays"], "other", digest(canonical(tiny())))
    with pytest.raises(MismatchError, match="it holds other") as caught:
        check_arrays("wanted", tiny())
    assert caught.value.other == "other"


def test_incomplete_or_fractional_arrays_are_refused():
    raw = tiny()
    with pytest.raises(MismatchError, match="no array y_test"):
        canonical({name: raw[name] for name in ("x_train", "y_train", "x_test")})
    with pytest.raises(MismatchError, match="x_train has dtype float64"):
        canonical({**raw, "x_train": raw["x_train"] / 2})


def test_archives_are_compared_with_their_md5(monkeypatch, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"hello")
    check_archive(tmp_path / "a.tar.gz")  # nothing recorded
    monkeypatch.setitem(recorded()["archives_md5"], "a.tar.gz", "5d41402abc4b2a76b9719d911017c592")
    check_archive(tmp_path / "a.tar.gz")
    (tmp_path / "a.tar.gz").write_bytes(b"hallo")
    with pytest.raises(MismatchError, match=r"md5 .* instead of 5d41402abc4b"):
        check_archive(tmp_path / "a.tar.gz")
