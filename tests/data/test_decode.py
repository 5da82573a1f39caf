"""The decoders on bytes made by hand from the formats' descriptions."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from gossamer.data import decode


def idx_bytes(shape, values):
    return b"\x00\x00\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def cifar_record(labels, red, green, blue):
    return bytes(labels) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def tiny_idx():
    return {
        "train-images-idx3-ubyte": idx_bytes((2, 2, 3), range(12)),
        "train-labels-idx1-ubyte": idx_bytes((2,), [7, 9]),
        "t10k-images-idx3-ubyte": idx_bytes((1, 2, 3), [255] * 6),
        "t10k-labels-idx1-ubyte": idx_bytes((1,), [3]),
    }


def test_idx():
    assert decode.idx(idx_bytes((2, 1, 3), [1, 2, 3, 4, 5, 6])).tolist() == [[[1, 2, 3]], [[4, 5, 6]]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>not found</html>",
        b"\x00\x00\x0d\x01" + bytes(8),  # floats
        idx_bytes((2, 2), [1, 2, 3, 4])[:9],  # header cut short
        idx_bytes((2, 2), [1, 2, 3]),
        idx_bytes((2, 2), [1, 2, 3, 4, 5]),
    ],
)
def test_idx_refuses_what_does_not_fit(data):
    with pytest.raises(ValueError, match="idx"):
        decode.idx(data)


@pytest.mark.parametrize("packed", [True, False])
def test_idx_folder(tmp_path, packed):
    for name, data in tiny_idx().items():
        (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    raw = decode.idx_folder(tmp_path)
    assert raw["x_train"].tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    assert raw["y_train"].tolist() == [7, 9]
    assert raw["x_test"].shape == (1, 2, 3)
    assert raw["y_test"].tolist() == [3]


def test_idx_folder_with_a_truncated_gzip(tmp_path):
    for name, data in tiny_idx().items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data)[:-6])
    with pytest.raises(ValueError, match="damaged"):
        decode.idx_folder(tmp_path)


def test_mnist_csv(tmp_path):
    header = ",".join(["label", *(f"{row}x{column}" for row in range(1, 29) for column in range(1, 29))])
    line = ",".join(["4", *(str(pixel % 256) for pixel in range(784))])
    (tmp_path / "mnist_train.csv").write_text(f"{header}\n{line}\n{line}\n")
    (tmp_path / "mnist_test.csv").write_text(f"{header}\n{line}\n")
    raw = decode.mnist_csv(tmp_path)
    assert raw["x_train"].shape == (2, 28, 28)
    assert raw["x_train"].dtype == np.uint8
    assert raw["x_train"][1, 2, 5] == 2 * 28 + 5
    assert raw["y_test"].tolist() == [4]


@pytest.mark.parametrize("field", ["256", "x", "", "1.5"])
def test_mnist_csv_refuses_what_is_no_pixel(tmp_path, field):
    line = ",".join(["4", *["0"] * 783, field])
    (tmp_path / "mnist_train.csv").write_text(f"header\n{line}\n")
    with pytest.raises(ValueError, match="to uint8"):
        decode.mnist_csv(tmp_path)


@pytest.mark.parametrize("root", ["", "package/"])
def test_cifar10(tmp_path, root):
    members = {f"{root}cifar-10-batches-bin/data_batch_{b}.bin": cifar_record([b], 10 + b, 20, 30) for b in range(1, 6)}
    members[f"{root}cifar-10-batches-bin/test_batch.bin"] = cifar_record([0], 1, 2, 3)
    raw = decode.cifar10(tar(tmp_path / "c.tar.gz", members), root=root)
    assert raw["y_train"].tolist() == [1, 2, 3, 4, 5]  # the batches in order
    assert raw["x_train"].shape == (5, 32, 32, 3)
    assert raw["x_train"][2, 5, 7].tolist() == [13, 20, 30]


def test_cifar_planes_are_row_major():
    plane = bytes(range(256)) * 4
    images, labels = decode.cifar_records(b"\x05" + plane + bytes(2048), label_bytes=1)
    assert images[0, 3, 4].tolist() == [3 * 32 + 4, 0, 0]
    assert labels.tolist() == [5]


def test_cifar100_takes_the_fine_label(tmp_path):
    members = {
        "cifar-100-binary/train.bin": cifar_record([19, 99], 1, 2, 3) * 2,
        "cifar-100-binary/test.bin": cifar_record([3, 42], 1, 2, 3),
    }
    raw = decode.cifar100(tar(tmp_path / "c.tar.gz", members))
    assert raw["y_train"].tolist() == [99, 99]
    assert raw["y_test"].tolist() == [42]


def test_cifar_refuses_half_a_record():
    with pytest.raises(ValueError, match="no whole number of 3073-byte"):
        decode.cifar_records(bytes(5000), label_bytes=1)


def test_covertype_both_files(tmp_path):
    rows = np.arange(3 * 55).reshape(3, 55) - 40
    text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
    with gzip.open(tmp_path / "covtype.data.gz", "wt") as file:
        file.write(text)
    (tmp_path / "covtype.csv").write_text(",".join(["h"] * 55) + "\n" + text)
    for name in ("covtype.data.gz", "covtype.csv"):
        raw = decode.covertype(tmp_path / name)
        assert raw["x_train"].tolist() == rows[:, :-1].tolist()
        assert raw["y_train"].tolist() == rows[:, -1].tolist()
        assert raw["x_test"].shape == (0, 54)


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        decode.npz(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text"])
def test_npz_refuses_damaged_files(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|pickled"):
        decode.npz(tmp_path / "a.npz")


def test_npz_refuses_a_bare_array(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(ValueError, match="bare array"):
        decode.npz(tmp_path / "a.npy")


def test_a_missing_member_is_damage(tmp_path):
    with pytest.raises(ValueError, match="damaged"):
        decode.cifar10(tar(tmp_path / "c.tar.gz", {"other": b"x"}))
