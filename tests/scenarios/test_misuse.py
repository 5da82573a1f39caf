"""Slips of a Python caller: each is one sentence that names the argument, and nothing is written or done otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from tests.support.refusals import expect_refusal

import gossamer

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
SHUFFLED = FRAME["y"].sample(frac=1, random_state=0)
SITES = np.arange(60) % 3
PARTS = [(X[i::3], Y[i::3]) for i in range(3)]
BASE: dict[str, Any] = {
    "nodes": 3,
    "rounds": 2,
    "data": {"kind": "digits"},
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
    "privacy": {"epsilon": 1.0, "sampling": {"kind": "full"}, "clip": {"kind": "constant", "bound": 1.0}},
}


def masked(values: Any) -> Any:
    mask = np.zeros(np.shape(values), bool)
    mask[0] = True
    return np.ma.masked_array(values, mask)


def data(x: Any = X, y: Any = Y, **more: Any) -> Any:
    return gossamer.Data((x, y), **{"classes": 2, "count": 20, **more})


def by_node(records: Any, **more: Any) -> Any:
    return gossamer.Data(records, classes=2, count=20, **more)


def frame(given: Any = FRAME, **more: Any) -> Any:
    return gossamer.Data(given, **{"label": "y", "classes": 2, "count": 20, **more})


def filled(value: float) -> torch.nn.Module:
    module = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(module.weight, value)
    return module


class Ragged(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return torch.zeros(i + 1), 0


class Broken(Ragged):
    def __getitem__(self, i: int) -> Any:
        raise RuntimeError("no such file")


class Endless(torch.utils.data.Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return torch.zeros(3), 0


# What is wrong → (arguments of gossamer.run, what the sentence names).
RUN: dict[str, tuple[dict[str, Any], str]] = {
    "fewer parts than nodes": ({"data": by_node(PARTS[:2])}, "data 2 3"),
    "more parts than nodes": ({"data": by_node([*PARTS, PARTS[0]])}, "data 4 3"),
    "more parts than changed nodes": (
        {"data": by_node(PARTS), "changes": {"nodes": 2}},
        "data 3 2",
    ),
    "a node that is none": ({"data": by_node(dict(enumerate([*PARTS, PARTS[0]])))}, "data 3 0 2"),
    "nodes by name": ({"data": by_node(dict(zip("abc", PARTS, strict=True)))}, "data predict"),
    "persons of more nodes": ({"data": by_node(PARTS, persons=[SITES] * 4)}, "persons 4"),
    "no parts": ({"data": []}, "data empty"),
    "no part by node": ({"data": {}}, "data dict"),
    "parts that are arrays": ({"data": [X, Y]}, "data ndarray"),
    "a triple": ({"data": (X, Y, Y)}, "data tuple"),
    "Data of Data": ({"data": gossamer.Data(data())}, "data Data"),
    "a generator": ({"data": (part for part in PARTS)}, "data generator"),
    "a file's name": ({"data": "rows.csv"}, "data str"),
    "masked x": ({"data": data(x=masked(X))}, "data x masked"),
    "masked y": ({"data": data(y=masked(Y))}, "data y masked"),
    "masked owners": ({"data": data(owners=masked(SITES))}, "owners masked"),
    "masked part": ({"data": by_node([(masked(x), y) for x, y in PARTS])}, "data masked"),
    "masked test": ({"data": data(test=(masked(X), Y))}, "test masked"),
    "ragged rows": ({"data": data(x=[[1, 2, 3]] * 59 + [[1, 2]])}, "data sequences"),
    "sparse x": ({"data": data(x=scipy.sparse.csr_matrix(X))}, "data csr_matrix"),
    "sparse tensor": ({"data": data(x=torch.tensor(X).to_sparse())}, "data tensor"),
    "tensor without values": ({"data": data(x=torch.tensor(X).to("meta"))}, "data tensor meta"),
    "tensor of bfloat16": ({"data": data(x=torch.tensor(X).bfloat16())}, "data torch.bfloat16"),
    "iterator of rows": ({"data": data(x=iter(X))}, "data iterator"),
    "numbers as objects": ({"data": data(x=X.astype(object))}, "data object"),
    "complex x": ({"data": data(x=X.astype(complex))}, "data complex128"),
    "times as labels": ({"data": data(y=np.zeros(60, "datetime64[s]"))}, "data dtype"),
    "a NaN": ({"data": data(x=np.where(X[0, 0] == X, np.nan, X))}, "data infinite"),
    "y of another length": ({"data": data(y=Y[:50])}, "data 50"),
    "y in two dimensions": ({"data": data(y=Y[:, None])}, "data 60 1"),
    "y in another order": ({"data": data(x=FRAME[["a", "b"]], y=SHUFFLED)}, "y index"),
    "owners in another order": ({"data": frame(owners=SHUFFLED)}, "owners index"),
    "persons in another order": ({"data": frame(persons=SHUFFLED)}, "persons index"),
    "owners without a value": ({"data": data(owners=np.where(SITES, SITES, np.nan))}, "owners value"),
    "owners that are None": (
        {"data": data(owners=np.array([None, *SITES[1:]], dtype=object))},
        "owners value",
    ),
    "label of arrays": ({"data": data(label="y")}, "label y"),
    "features of arrays": ({"data": data(features=["a"])}, "features columns"),
    "label by number": ({"data": frame(label=2)}, "label 2"),
    "features as text": ({"data": frame(features="a")}, "features a"),
    "ranges of one number": ({"data": data(ranges={"0": 1})}, "data.ranges.0 1"),
    "ranges as words": ({"data": data(ranges={"0": ["a", "b"]})}, "data.ranges.0[0]"),
    "ranges as a list": ({"data": data(ranges=[0, 1])}, "data.ranges table"),
    "columns as a list": ({"data": frame(columns=["a", "b"])}, "data.columns table"),
    "test of other columns": ({"data": frame(test=FRAME.rename(columns={"a": "z"}))}, "data.features a column"),
    "test of fewer columns": ({"data": data(test=(X[:, :2], Y))}, "data.test 2"),
    "test as text": ({"data": data(test="test.csv")}, "test str"),
    "dataset of ragged records": ({"data": by_node(Ragged())}, "data sequences"),
    "dataset that stops": ({"data": by_node(Broken())}, "data RuntimeError"),
    "dataset without length": ({"data": by_node(Endless())}, "data pairs"),
    "changes as a list": ({"changes": ["rounds=2"]}, "changes dictionary"),
    "changes as text": ({"changes": "rounds=2"}, "changes dictionary"),
    "a key that is no text": ({"changes": {1: 1}}, "changes dictionary"),
    "an unknown key": ({"changes": {"privacy.epsilom": 1}}, "privacy.epsilom privacy.epsilon"),
    "nodes as a float": ({"changes": {"nodes": 3.0}}, "nodes 3.0"),
    "rounds as a bool": ({"changes": {"rounds": True}}, "rounds true"),
    "epsilon as text": ({"changes": {"privacy.epsilon": "1"}}, "privacy.epsilon 1"),
    "epsilon that is NaN": ({"changes": {"privacy.epsilon": math.nan}}, "privacy.epsilon nan"),
    "epsilon of two nodes": ({"changes": {"privacy.epsilon": [1.0, 2.0]}}, "privacy.epsilon 2"),
    "module's class": ({"module": torch.nn.Linear}, "module Linear"),
    "module that is a function": ({"module": lambda x: x}, "module function"),
    "module by name": ({"module": "net.py:make"}, "module net.py:make"),
    "modules in a list": ({"module": [torch.nn.Linear(3, 2)]}, "module list"),
    "module of more outputs": ({"module": torch.nn.Linear(3, 5)}, "module 1 5 2"),
    "module of one output": ({"module": torch.nn.Linear(3, 1)}, "module 1 2"),
    "module of other inputs": ({"module": torch.nn.Linear(4, 2)}, "model itself"),
    "module with NaN": ({"module": filled(math.nan)}, "module weight"),
    "module with inf": ({"module": filled(math.inf)}, "module weight"),
    "module without values": ({"module": torch.nn.Linear(3, 2, device="meta")}, "module weight"),
    "lazy module": ({"module": torch.nn.LazyLinear(2)}, "model weight"),
    "module in half precision": ({"module": torch.nn.Linear(3, 2).half()}, "model weight"),
    "module without parameters": ({"module": torch.nn.Flatten()}, "module train"),
    "module that is frozen": (
        {"module": torch.nn.Linear(3, 2).requires_grad_(False)},
        "module train",
    ),
    "progress as text": ({"progress": "no"}, "progress no"),
    "out that is a number": ({"out": 3}, "out 3"),
    "out with a null byte": ({"out": "a\0b"}, "out path"),
    "data_dir that is a number": ({"data_dir": 3}, "data_dir 3"),
}  # fmt: skip


@pytest.mark.parametrize("what", RUN)
def test_a_slip_in_a_run_is_one_sentence(what: str, tmp_path: Path) -> None:
    options, sentence = RUN[what]
    options = {"data": data(), "out": tmp_path / "run", **options}
    changes = options.pop("changes", None)
    if what.startswith("persons"):
        changes = {"privacy.unit": {"column": "p", "max_records": 2}}
    with expect_refusal(names=sentence) as found:
        gossamer.run(BASE, changes, **options)  # type: ignore[operator]
    assert "\n" not in str(found.value)
    assert not [*tmp_path.iterdir()]
    if not options.keys() & {"progress"} and options["out"] == tmp_path / "run":
        planned = {key: value for key, value in options.items() if key != "out"}
        with expect_refusal(names=sentence):
            gossamer.plan(BASE, changes, **planned)  # type: ignore[operator]


# What is wrong → (parameters, arguments of fit, what the sentence names).
FIT: dict[str, tuple[dict[str, Any], dict[str, Any], str | list[str]]] = {
    "masked X": ({}, {"X": masked(X)}, "X masked"),
    "masked y": ({}, {"y": masked(Y)}, "y masked"),
    "masked owners": ({}, {"owners": masked(SITES)}, "owners masked"),
    "y in another order": ({}, {"X": FRAME[["a", "b"]], "y": SHUFFLED}, "y index X"),
    "owners in another order": ({}, {"X": FRAME[["a", "b"]], "y": FRAME["y"], "owners": SHUFFLED}, "owners index"),
    "owners without a value": ({}, {"owners": np.where(SITES, SITES, np.nan)}, "owners value"),
    "owners of another length": ({}, {"owners": SITES[:5]}, ["owners", "(5,)"]),
    "owners in two dimensions": ({}, {"owners": SITES[:, None]}, ["owners", "(60, 1)"]),
    "owners as a bool": ({"owners": True}, {}, "owners True"),
    "nodes as a float": ({"nodes": 2.5}, {}, "nodes 2.5"),
    "nodes as text": ({"nodes": "3"}, {}, "nodes 3"),
    "nodes as a bool": ({"nodes": True}, {}, "nodes true"),
    "no nodes": ({"nodes": 0}, {}, "nodes 0"),
    "rounds as a float": ({"rounds": 2.5}, {}, "rounds 2.5"),
    "rounds as a bool": ({"rounds": True}, {}, "rounds true"),
    "rounds as text": ({"rounds": "many"}, {}, "rounds many"),
    "no rounds": ({"rounds": 0}, {}, "rounds 0"),
    "epsilon as text": ({"epsilon": "1"}, {}, "epsilon 1"),
    "epsilon as a bool": ({"epsilon": True}, {}, "epsilon true"),
    "epsilon as a list": ({"epsilon": [1, 2, 3]}, {}, "epsilon 1 2 3"),
    "no epsilon": ({"epsilon": 0}, {}, "epsilon 0"),
    "epsilon that is NaN": ({"epsilon": math.nan}, {}, "epsilon nan"),
    "delta as text": ({"delta": "x"}, {}, "delta x"),
    "records as a float": ({"records": 20.5}, {}, "records 20.5"),
    "records as text": ({"records": "20"}, {}, "records 20"),
    "one bound": ({"bounds": 3}, {}, "bounds 3"),
    "three bounds": ({"bounds": (1, 2, 3)}, {}, ["bounds", "(1, 2, 3)"]),
    "bounds of fewer columns": ({"bounds": ([0, 0], [1, 1])}, {}, "bounds 3"),
    "bounds the wrong way round": ({"bounds": (1, 0)}, {}, ["bounds", "(1, 0)"]),
    "noise as a list": ({"noise": ["gaussian"]}, {}, "noise gaussian"),
    "fit_intercept as text": ({"fit_intercept": "no"}, {}, "fit_intercept no"),
    "seeded_noise as text": ({"seeded_noise": "no"}, {}, "seeded_noise no"),
    "settings as a list": ({"settings": ["rounds=2"]}, {}, "changes dictionary"),
    "directory as a number": ({"directory": 3}, {}, "directory 3"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::gossamer.estimators.PrivacyLeakWarning")
@pytest.mark.parametrize("estimator", ["PrivateClassifier", "PrivateRegressor"])
@pytest.mark.parametrize("what", FIT)
def test_a_slip_in_an_estimator_is_one_sentence(what: str, estimator: str) -> None:
    parameters, given, names = FIT[what]
    made = getattr(gossamer, estimator)(**{"nodes": 3, "rounds": 2, "records": 20, **parameters})
    with expect_refusal(names=names, error=ValueError):
        made.fit(**{"X": X, "y": Y, **given})


@pytest.mark.parametrize("classes", [2, [], [None, 1], [0, 0]])
def test_classes_are_a_list_of_labels(classes: Any) -> None:
    with expect_refusal(names="classes", error=ValueError):
        gossamer.PrivateClassifier(nodes=3, rounds=2, records=20, classes=classes).fit(X, Y)


@pytest.mark.parametrize("given", [3, ("a", "b"), (0, math.nan), (0, math.inf), (0, 1, 2), (1, 0)])
def test_a_target_range_is_two_numbers(given: Any) -> None:
    with expect_refusal("target_range", remedy=True, error=ValueError):
        gossamer.PrivateRegressor(nodes=3, rounds=2, records=20, target_range=given).fit(X, X[:, 0])


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "compare nothing": (lambda: gossamer.compare([]), "recipes []"),
    "compare None": (lambda: gossamer.compare(None), "None configuration"),  # type: ignore[arg-type]
    "compare a missing file": (lambda: gossamer.compare(Path("a.toml")), "a.toml TOML"),  # type: ignore[arg-type]
    "compare seeds as text": (lambda: gossamer.compare(BASE, seeds="2"), "seeds 2"),  # type: ignore[arg-type]
    "compare seeds as a float": (lambda: gossamer.compare(BASE, seeds=1.5), "seeds 1.5"),  # type: ignore[arg-type]
    "compare jobs as text": (lambda: gossamer.compare(BASE, jobs="2"), "--jobs 2"),  # type: ignore[arg-type]
    "compare engine": (lambda: gossamer.compare(BASE, engine=3), "--engine 3"),  # type: ignore[arg-type]
    "compare out": (lambda: gossamer.compare(BASE, out=3), "out 3"),  # type: ignore[arg-type]
    "compare over": (lambda: gossamer.compare(BASE, over=["rounds"]), "over dictionary"),  # type: ignore[arg-type]
    "compare over one": (lambda: gossamer.compare(BASE, over={"rounds": 2}), "rounds 2"),  # type: ignore[dict-item]
    "tune over": (lambda: gossamer.tune(BASE, over=["x"]), "over dictionary"),  # type: ignore[arg-type]
    "tune a key that is no text": (lambda: gossamer.tune(BASE, over={1: [1, 2]}), "over dictionary"),  # type: ignore[dict-item]
    "tune changes": (lambda: gossamer.tune(BASE, ["x"]), "changes dictionary"),  # type: ignore[arg-type]
    "tune out": (lambda: gossamer.tune(BASE, over={"algorithm.lr": [1, 2]}, out=3), "out 3"),  # type: ignore[arg-type]
    "audit runs as text": (lambda: gossamer.audit(BASE, runs="9"), "--runs 9"),  # type: ignore[arg-type]
    "audit runs as a float": (lambda: gossamer.audit(BASE, runs=1.5), "--runs 1.5"),  # type: ignore[arg-type]
    "audit runs as a bool": (lambda: gossamer.audit(BASE, runs=True), "--runs true"),
    "audit confidence": (lambda: gossamer.audit(BASE, confidence="x"), "--confidence x"),  # type: ignore[arg-type]
    "audit observer": (lambda: gossamer.audit(BASE, observer=3), "--observer 3"),  # type: ignore[arg-type]
    "audit records": (lambda: gossamer.audit(BASE, canary_records="x"), "--canary-records x"),  # type: ignore[arg-type]
    "audit module": (lambda: gossamer.audit(BASE, module=torch.nn.Linear), "module Linear"),  # type: ignore[arg-type]
    "audit data_dir": (lambda: gossamer.audit(BASE, data_dir=3), "data_dir 3"),  # type: ignore[arg-type]
    "resume": (lambda: gossamer.resume(3), "directory 3"),  # type: ignore[arg-type]
    "load": (lambda: gossamer.load(None), "directory None"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_slip_in_another_call_is_one_sentence(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, sentence = OTHERS[what]
    with expect_refusal(names=sentence):
        call()
    assert not [*tmp_path.iterdir()]


def test_rows_to_predict_are_not_masked(tmp_path: Path) -> None:
    outcome = gossamer.run(BASE, data=data(), out=tmp_path / "run")  # type: ignore[operator]
    with expect_refusal(key="x", names="masked"):
        outcome.predict(masked(X))
    with expect_refusal(key="x", names="csr_matrix"):
        outcome.predict(scipy.sparse.csr_matrix(X))


def test_columns_of_a_test_frame_are_matched_by_name(tmp_path: Path) -> None:
    """In another order they are the same columns; so its rows are found among those of training."""
    with expect_refusal(key="data.test", names="records"):
        gossamer.run(BASE, data=frame(test=FRAME[["y", "b", "a"]]), out=tmp_path / "run")  # type: ignore[operator]


def test_what_is_no_slip_is_taken(tmp_path: Path) -> None:
    for number, given in enumerate(
        (
            data(x=np.ma.masked_array(X)),
            data(x=torch.tensor(X, requires_grad=True)),
            data(x=FRAME[["a", "b"]], y=FRAME["y"]),
            by_node(dict(enumerate(PARTS))),
        )
    ):
        assert gossamer.run(BASE, data=given, out=tmp_path / str(number)).certificate  # type: ignore[operator]


def test_a_run_in_inference_mode_is_refused(tmp_path: Path) -> None:
    with torch.inference_mode(), expect_refusal(names="inference_mode"):
        gossamer.run(BASE, data=data(), out=tmp_path / "run")  # type: ignore[operator]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_another_default_type_is_refused(command: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """In float64 every record failed and was left out: a run that trained on nothing, and did not say so."""
    torch.set_default_dtype(dtype)
    try:
        with expect_refusal("torch.get_default_dtype()", dtype, names="torch.float32"):
            getattr(gossamer, command)("quickstart", {"rounds": 1})
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_default_device_without_values_is_refused(tmp_path: Path) -> None:
    with torch.device("meta"), expect_refusal("torch.get_default_device()", "meta", names="runtime.device"):
        gossamer.run(BASE, data=data(), out=tmp_path / "run")  # type: ignore[operator]
    assert not [*tmp_path.iterdir()]


def test_records_of_nobody_are_refused(tmp_path: Path) -> None:
    changes = {"privacy.unit.column": "person"}
    with expect_refusal(names="nobody"):
        gossamer.run(BASE, changes, data=data(persons=[None] * len(X)), out=tmp_path / "run")  # type: ignore[operator]
    assert not [*tmp_path.iterdir()]
