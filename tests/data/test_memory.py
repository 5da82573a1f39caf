"""Records handed over in Python become the same data set whichever way they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from gossamer.data.load import datasets
from gossamer.data.own import Data, Memory

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 3


def read(data: Data, nodes: range = range(3), **more: Any) -> Any:
    source = datasets.parse({**data.table(), **more})
    assert isinstance(source, Memory)
    return data.dataset(source, nodes, None, 0)


def frame(library: str) -> Any:
    module = pytest.importorskip(library)
    return module.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "site": Y, "y": Y})


@pytest.mark.parametrize(
    "form",
    [
        lambda: Data((X, Y), classes=3),
        lambda: Data((torch.from_numpy(X), torch.from_numpy(Y)), classes=3),
        lambda: Data((X.tolist(), Y.tolist()), classes=3),
        lambda: Data(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), classes=3),
        lambda: Data(frame("pandas"), label="y", features=["a", "b", "c"], classes=3),
        lambda: Data(frame("polars"), label="y", features=["a", "b", "c"], classes=3),
        lambda: Data(frame("polars"), label="y", owners="site", classes=3),
    ],
)
def test_every_form_is_the_same_records(form: Any) -> None:
    found = read(form())
    np.testing.assert_array_equal(found.x_train, X)
    np.testing.assert_array_equal(found.y_train, Y)
    assert (found.classes, found.x_train.dtype, found.y_train.dtype) == (3, np.float32, np.int64)


def test_several_labels_come_as_columns_or_as_an_array() -> None:
    several = np.stack([Y > 0, Y > 1], 1)
    for data in (
        Data((X, several), task="multi-label"),
        Data((X, several.astype(float)), task="multi-label"),
    ):
        found = read(data)
        np.testing.assert_array_equal(found.y_train, several.astype(np.float32))
        assert found.classes is None
    named = pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "ill": several[:, 0], "old": several[:, 1]})
    found = read(Data(named, label=["ill", "old"]))
    np.testing.assert_array_equal(found.y_train, several.astype(np.float32))
    assert found.labels == ("ill", "old")


def test_by_node_and_by_owner_are_one_partition() -> None:
    parts = [(X[node::3], Y[node::3]) for node in range(3)]
    apart = read(Data(parts, classes=3))
    np.testing.assert_array_equal(apart.owner, np.repeat(range(3), 4))
    np.testing.assert_array_equal(apart.x_train, np.concatenate([X[node::3] for node in range(3)]))
    by_name = read(Data(dict(enumerate(parts)), classes=3), nodes=range(1, 2))
    np.testing.assert_array_equal(by_name.x_train, X[1::3])  # one rank hands over its own nodes' alone
    owned = read(Data((X, Y), owners=np.array(["a", "b", "c"] * 4), classes=3))
    np.testing.assert_array_equal(owned.owner, Y)


def test_what_is_declared_becomes_the_configuration_and_names_none_of_the_records() -> None:
    data = Data((X, Y), classes=np.array([0, 1, 2]), count=(4, 4, 4), test=(X[:2] + 9, Y[:2]), owners=Y)
    assert data.table() == {
        "kind": "memory", "by_node": False, "owners": True, "test": True, "classes": [0, 1, 2], "records": [4, 4, 4],
    }  # fmt: skip
    found = read(data)
    assert found.public_test
    assert len(found.y_test) == 2
    assert not found.test_shares_rows
    assert read(Data((X, Y), classes=3, test=(X[:2], Y[:2]))).test_shares_rows


def test_words_are_labels_and_numbers_targets() -> None:
    named = read(Data((X, np.array(["x", "y", "z"] * 4, dtype=object)), classes=["z", "y", "x"]))
    np.testing.assert_array_equal(named.y_train, [2, 1, 0] * 4)
    targets = read(Data((X, X[:, 0] / 2), task="regression"))
    assert targets.classes is None
    np.testing.assert_array_equal(targets.y_train, X[:, 0] / 2)


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([(X[0], 0)])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda: Data(X), "data y"),
        (lambda: Data((X, Y[:5])), "data y 5 12"),
        (lambda: Data((np.full_like(X, np.nan), Y)), "data infinite"),
        (lambda: Data(frame("polars")), "data predict"),
        (lambda: Data(frame("polars"), label="z"), "data.label z"),
        (lambda: Data(frame("polars"), label="y", owners=Y[:3]), "data 3 12"),
        (lambda: Data((X, Y), owners="site"), "owners site data"),
        (lambda: Data(Endless()), "data IterableDataset"),
        (lambda: Data([(X, Y)], owners=Y), "data apart"),
        (lambda: Data([(X, Y), (X[:, :2], Y), (X, Y)]), "data 1 0"),
        (lambda: Data({0: (X, Y)}), "data 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(data: Any, sentence: str) -> None:
    with expect_refusal(names=sentence):
        read(data(), **({} if data().classes else {"classes": 3}))


def test_a_class_is_the_same_on_every_node() -> None:
    """Read off each node by itself, the first label of one is not the first of another."""
    with expect_refusal(key="data", names="1 data.classes", remedy=True):
        read(Data([(X, Y % 2), (X, Y % 2 + 1), (X, Y % 2)]))


def test_a_run_goes_on_with_records_in_the_form_that_it_began_with() -> None:
    began = datasets.parse(Data((X, Y), classes=3).table())
    for other in (
        Data([(X, Y)] * 3, classes=3),
        Data((X, Y), owners=Y, classes=3),
        Data((X, Y), test=(X, Y)),
    ):
        with expect_refusal(names="began"):
            other.dataset(began, range(3), None, 0)


def test_a_configuration_alone_does_not_have_the_records() -> None:
    with expect_refusal(key="data.kind", value="memory", names="gossamer.run"):
        Memory().load()


def test_a_frame_with_declared_columns() -> None:
    made = pytest.importorskip("pandas").DataFrame
    table = made({"y": [0, 1, 1], "ward": ["a", "c", None], "age": [10.0, np.nan, 90.0]})
    columns = {"age": {"range": [0, 50], "missing": True}, "ward": {"levels": ["a", "b"], "missing": True}}
    found = read(Data(table, label="y", classes=2, columns=columns))
    wanted = [[0.2, 0, 1, 0, 0], [0, 1, 0, 0, 0], [1, 0, 0, 0, 1]]
    np.testing.assert_array_equal(found.x_train, np.float32(wanted))
    with expect_refusal(key="data.columns", names="declares"):
        read(Data((X, Y), classes=2, columns=columns))
    with expect_refusal(key="features", names="leave", remedy=True):
        read(Data(table, label="y", classes=2, columns=columns, features=["age"]))


TOKENS = RNG.integers(0, 9, (12, 4))
THERE = TOKENS > 2
RAGGED = [TOKENS[i, : 1 + i % 4] for i in range(12)]


class Named(Dataset):  # type: ignore[type-arg]
    """Records by name, as libraries for text give them."""

    def __init__(self, *, ragged: bool) -> None:
        self.ragged = ragged

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        tokens = RAGGED[i] if self.ragged else TOKENS[i]
        more = {} if self.ragged else {"there": torch.from_numpy(THERE[i])}
        return {"tokens": torch.from_numpy(tokens), **more, "y": int(Y[i])}


@pytest.mark.parametrize(
    ("form", "names"),
    [
        (lambda: Data(({"tokens": TOKENS, "there": THERE}, Y), classes=3), ["tokens", "there"]),
        (lambda: Data({"y": Y, "tokens": TOKENS, "there": THERE}, label="y", classes=3), ["tokens", "there"]),
        (lambda: Data(((torch.from_numpy(TOKENS), torch.from_numpy(THERE)), Y), classes=3), [0, 1]),
        (
            lambda: Data(TensorDataset(*map(torch.from_numpy, (TOKENS, THERE, Y))), classes=3),
            [0, 1],
        ),
        (lambda: Data(Named(ragged=False), label="y", classes=3), ["tokens", "there"]),
    ],
)
def test_parts_of_a_record_lie_side_by_side(form: Any, names: list[str | int]) -> None:
    data = form()
    found = read(data)
    np.testing.assert_array_equal(found.x_train, np.hstack([TOKENS, THERE]))
    np.testing.assert_array_equal(found.y_train, Y)
    parts = [(part["name"], part["type"], part["shape"]) for part in data.table()["parts"]]
    assert parts == [(names[0], "int", [4]), (names[1], "bool", [4])]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        (lambda length: Data((RAGGED, Y), classes=3, length=length), [0, 1]),
        (lambda length: Data(([one.tolist() for one in RAGGED], Y), classes=3, length=length), [0, 1]),
        (lambda length: Data(({"tokens": RAGGED}, Y), classes=3, length=length), ["tokens", "mask"]),
        (lambda length: Data(Named(ragged=True), label="y", classes=3, length=length), ["tokens", "mask"]),
    ],
)
@pytest.mark.parametrize("length", [3, 4, 6])
def test_sequences_are_filled_up_or_cut_to_the_declared_length(form: Any, names: list[str | int], length: int) -> None:
    data = form(length)
    found = read(data).x_train
    lengths = np.minimum([len(one) for one in RAGGED], length)
    np.testing.assert_array_equal(found[:, length:], np.arange(length) < lengths[:, None])
    for row, tokens, own in zip(found, RAGGED, lengths, strict=True):
        np.testing.assert_array_equal(row[:own], tokens[:own])
        assert not row[own:length].any()
    assert [part["name"] for part in data.table()["parts"]] == names
    parts = [(RAGGED[node::3], Y[node::3]) for node in range(3)]  # no node's longest sequence matters
    apart = read(Data(parts, classes=3, length=length))
    np.testing.assert_array_equal(apart.x_train, np.concatenate([found[node::3] for node in range(3)]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: Data((RAGGED, Y), classes=3), "data length"),
        (lambda: Data(({"tokens": RAGGED}, Y), classes=3), "data length"),
        (
            lambda: Data([(TOKENS[:4], Y[:4]), (RAGGED[4:8], Y[4:8]), (TOKENS[8:], Y[8:])], classes=3),
            "data length",
        ),
        (lambda: Data({"tokens": TOKENS, "y": Y}, classes=3), "data label"),
        (lambda: Data({"tokens": TOKENS, "y": Y}, label="z", classes=3), "data label"),
        (lambda: Data(({"tokens": TOKENS, "there": THERE[:5]}, Y), classes=3), "data there"),
        (lambda: Data(({"tokens": RAGGED, "others": RAGGED[::-1]}, Y), classes=3, length=4), "data mask"),
        (lambda: Data(({"tokens": TOKENS + 2**25}, Y), classes=3), "data exactly"),
        (lambda: Data(({"tokens": np.array(["a"] * 12)}, Y), classes=3), "data tokens"),
        (lambda: Data([({"a": X}, Y), ({"b": X}, Y), ({"a": X}, Y)], classes=3), "data parts"),
        (lambda: Data([({"a": X}, Y), ({"a": X[:, :2]}, Y), ({"a": X}, Y)], classes=3), "data shape"),
        (lambda: Data((X, Y, X), classes=3), "data tuple"),
    ],
)
def test_parts_that_do_not_fit_are_refused(data: Any, words: str) -> None:
    def checked() -> None:
        data().check()
        read(data())

    with expect_refusal(names=words):
        checked()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_with_its_labels_apart_and_columns_in_another_order(library: str) -> None:
    table = frame(library)
    found = read(Data((table[["a", "b", "c", "site"]], table["y"]), owners="site", classes=3))
    np.testing.assert_array_equal(found.x_train, X)
    np.testing.assert_array_equal(found.y_train, Y)
    np.testing.assert_array_equal(found.owner, Y)
    nodes = [table[["a", "b", "c", "y"]], table[["y", "c", "a", "b"]], table[["b", "y", "c", "a"]]]
    found = read(Data(nodes, label="y", classes=3, test=table[["c", "b", "a", "y"]]))
    np.testing.assert_array_equal(found.x_train, np.concatenate([X] * 3))
    np.testing.assert_array_equal(found.x_test, X)
    schema = {"a": [-9.0, 9.0], "site": ["0", "2"]}
    declared = read(Data((table[["site", "a"]], Y), columns=schema, classes=3))
    np.testing.assert_allclose(declared.x_train[:, 0], (X[:, 0] + 9) / 18, rtol=1e-6)
    np.testing.assert_array_equal(declared.x_train[:, 1:], np.stack([Y == 0, Y == 2], 1))


VECTORS = RNG.normal(size=(12, 4, 2)).astype(np.float32)


def test_vectors_over_time_are_no_images_for_a_module() -> None:
    for x in (VECTORS, torch.from_numpy(VECTORS), VECTORS.tolist()):
        assert read(Data((x, Y), classes=3)).x_train.shape == (12, 1, 4, 2)
        data = Data((x, Y), classes=3, sequences=True)
        np.testing.assert_array_equal(read(data, scale="none").x_train, VECTORS.reshape(12, 8))
        assert data.table()["parts"] == [{"name": 0, "type": "float", "shape": [4, 2], "padded": False, "marks": False}]
    scaled = read(Data((VECTORS, Y), classes=3, sequences=True), scale="unit-ball").x_train
    assert np.linalg.norm(scaled, axis=1).max() <= 1
    pixels = (VECTORS > 0).astype(np.uint8)
    assert read(Data((pixels, Y), classes=3, sequences=True)).x_train.shape == (12, 1, 4, 2)


@pytest.mark.parametrize("form", [TOKENS, torch.from_numpy(TOKENS), TOKENS.tolist()])
def test_an_array_is_sequences_where_a_length_is_declared(form: Any) -> None:
    found = read(Data((form, Y), classes=3, length=6)).x_train
    np.testing.assert_array_equal(found[:, :6], np.hstack([TOKENS, np.zeros((12, 2))]))
    np.testing.assert_array_equal(found[:, 6:], np.broadcast_to(np.arange(6) < 4, (12, 6)))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_a_list_of_sequences() -> None:
    nested = torch.nested.nested_tensor([torch.from_numpy(one) for one in RAGGED])
    for x in (nested, {"tokens": nested}):
        expected = read(Data((RAGGED, Y), classes=3, length=3)).x_train
        np.testing.assert_array_equal(read(Data((x, Y), classes=3, length=3)).x_train, expected)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: Data(DataLoader(TensorDataset(torch.from_numpy(X)))), "TensorDataset"),
        (lambda: Data([(X, Y), (X[:0], Y[:0]), (X, Y)], classes=3), "node 1"),
        (lambda: Data([({"a": X[:0]}, Y[:0]), ({"a": X}, Y), ({"a": X}, Y)], classes=3), "rows"),
        (lambda: Data([TensorDataset(torch.zeros(0, 3), torch.zeros(0))] * 3, classes=3), "records"),
        (lambda: Data((RAGGED, Y), classes=3, length="4"), "length 4"),
        (lambda: Data(({"a": X, "b": np.full_like(X, np.nan)}, Y), classes=3), "part b"),
        (lambda: Data(((TOKENS, THERE[:5]), Y), classes=3), "part 1"),
        (lambda: Data((torch.from_numpy(X).bfloat16(), Y), classes=3), ".float()"),
        (lambda: Data((X.astype(object), Y), classes=3), "astype"),
        (lambda: Data((frame("pandas"), Y), label="y", classes=3), "label y"),
        (lambda: Data(frame("pandas").assign(a=[1, "x"] * 6), label="y", classes=3), ["'a'"]),
        (lambda: Data(frame("pandas").assign(a="x"), label="y", classes=3), "data.columns"),
        (lambda: Data([frame("pandas"), frame("pandas").assign(d=1)] * 3, label="y", classes=3), "node 1"),
    ],
)
def test_a_form_that_cannot_be_read_is_named_with_its_remedy(data: Any, words: Any) -> None:
    def checked() -> None:
        data().check()
        read(data())

    with expect_refusal(names=words, remedy=True):
        checked()


def test_steps_for_one_part_are_refused_for_several() -> None:
    with expect_refusal(key="data.scale"):
        read(Data(({"tokens": TOKENS}, Y), classes=3), scale="unit-ball")
