"""New rows from a file: columns by name, what is missing and what is too much, and figures that say what they are."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.refusals import expect_refusal
from tests.support.signed_runs import edit
from tests.support.trained import trained

import gossamer
from gossamer.results.trained import read_description
from gossamer.training.predict import NOT_KNOWN_PUBLIC, export, node_of, predict_file, sentences


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trained")).directory


def table(path: Path, head: str, *lines: str) -> Path:
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_the_declared_hold_out_gives_the_printed_figure_and_nothing_to_hide(run: Path, tmp_path: Path) -> None:
    found = predict_file(run, run.parent / "new.csv", tmp_path / "p.csv", node=1)
    from gossamer.training.load import load

    assert found["accuracy"] == load(run).result["accuracy_by_node"][1]
    assert found["public"] is True
    assert found["not_used"] == ["site"]
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["prediction", "probability_0", "probability_1"]
    assert len(rows) == found["rows"] == 40
    for row in rows:
        assert float(row["probability_0"]) + float(row["probability_1"]) == pytest.approx(1)
        assert int(row["prediction"]) == int(float(row["probability_1"]) > 0.5)


def test_another_file_under_the_hold_outs_name_is_not_taken_for_it(tmp_path: Path) -> None:
    run = trained(tmp_path).directory
    table(tmp_path / "new.csv", "a,b,y", "1,1,1", "2,2,0", "5,5,1")
    found = predict_file(run, tmp_path / "new.csv", tmp_path / "p.csv")
    assert found["public"] is False


def test_columns_in_any_order_without_the_target_and_as_parquet(run: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    found = []
    one = table(tmp_path / "one.csv", "a,b", "1,0.5", "-1,-2")
    two = table(tmp_path / "two.csv", "b,unit,a", "0.5,x,1", "-2,y,-1")
    parquet.write_table(pa.table({"b": [0.5, -2.0], "a": [1.0, -1.0]}), tmp_path / "three.parquet")
    for file in (one, two, tmp_path / "three.parquet"):
        found.append(predict_file(run, file, tmp_path / "p.csv"))
        found[-1]["content"] = (tmp_path / "p.csv").read_text()
    assert found[0]["content"] == found[1]["content"] == found[2]["content"]
    assert found[1]["not_used"] == ["unit"]
    assert "accuracy" not in found[0]
    assert sentences(found[1]) == [
        f"2 rows predicted: {tmp_path / 'p.csv'}",
        "model: the mean of the models of all 3 nodes",
        "columns not used: unit",
    ]


def test_other_rows_with_their_truth_are_judged_and_marked(run: Path, tmp_path: Path) -> None:
    found = predict_file(run, table(tmp_path / "n.csv", "a,b,y", "1,1,1", "2,2,0"), tmp_path / "p.csv")
    assert found["accuracy"] in (0.0, 0.5, 1.0)
    assert (found["public"], found["not_private_because"]) == (False, NOT_KNOWN_PUBLIC)
    assert sentences(found)[-1] == f"({NOT_KNOWN_PUBLIC})"


@pytest.mark.parametrize(
    ("head", "lines", "words"),
    [
        ("a,c", ["1,2"], "trained"),
        (
            "a,b,y",
            ["1,2,7"],
            "among",
        ),
        ("a,b", ["1,"], "b"),
        ("a,b", ["1,x"], "numeric"),
        ("a,b", ["1,inf"], "b"),
        ("a,b", [], "rows"),
        ("a,a,b", ["1,1,1"], "a"),
    ],
)
def test_a_file_that_does_not_fit_is_a_sentence(
    run: Path, tmp_path: Path, head: str, lines: list[str], words: str
) -> None:
    with expect_refusal(key="n.csv", names=words):
        predict_file(run, table(tmp_path / "n.csv", head, *lines), tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_arrays_go_by_place(run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "n.npz", x=np.ones((3, 2)), y=np.array([0, 1, 1]), more=np.zeros(1))
    found = predict_file(run, tmp_path / "n.npz", tmp_path / "p.csv")
    assert (found["rows"], found["not_used"]) == (3, ["more"])
    for wrong, words in (
        ({"x": np.ones((3, 4))}, "x 3 4"),
        ({"z": np.ones(3)}, "x x_test z"),
        (
            {"x": np.ones((3, 2)), "y": np.zeros(2)},
            "y 2 3",
        ),
    ):
        np.savez(tmp_path / "n.npz", **wrong)
        with expect_refusal(key="n.npz", names=words):
            predict_file(run, tmp_path / "n.npz", tmp_path / "p.csv")


def test_where_it_is_written_and_what_is_read_are_checked_first(run: Path, tmp_path: Path) -> None:
    new = table(tmp_path / "n.csv", "a,b", "1,2")
    wrong: list[tuple[Path, Path, str]] = [
        (new, new, "--out rows"),
        (new, run / "certificate.json", "--out directory"),
        (new, tmp_path / "no" / "p.csv", "--out folder"),
        (
            tmp_path / "n.txt",
            tmp_path / "p.csv",
            "n.txt parquet",
        ),
        (tmp_path / "m.csv", tmp_path / "p.csv", "m.csv file"),
    ]
    for file, out, words in wrong:
        with expect_refusal(names=words):
            predict_file(run, file, out)


def test_records_without_names_of_columns_need_arrays(tmp_path: Path) -> None:
    from gossamer.data.inputs import Inputs
    from gossamer.training.predict import _from_table

    with expect_refusal(key="model", names="1 8", remedy=True):
        _from_table("csv", tmp_path / "n.csv", Inputs(shape=(1, 8, 8)))


@pytest.mark.parametrize(("text", "node"), [("average", "average"), ("0", 0), ("12", 12)])
def test_whose_model_is_meant(text: str, node: Any) -> None:
    assert node_of(text) == node


@pytest.mark.parametrize("text", ["", "-1", "mean", "1.5", "9" * 30])
def test_what_is_no_node_is_a_sentence(text: str) -> None:
    with expect_refusal(key="--node", names="average"):
        node_of(text)


def test_several_labels_have_a_column_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    lines = [f"{a:.3f},{b:.3f},{int(a > 0)},{int(b > a)}" for a, b in x]
    table(tmp_path / "all.csv", "a,b,flu,cold", *lines[:60])
    table(tmp_path / "new.csv", "a,b,flu,cold", *lines[60:])
    data = {
        "kind": "csv", "path": str(tmp_path / "all.csv"), "test": str(tmp_path / "new.csv"),
        "label": ["cold", "flu"], "records": 30,
    }  # fmt: skip
    few = {"nodes": 2, "rounds": 2, "topology.kind": "complete", "privacy.sampling": {"kind": "full"}}
    outcome = gossamer.run(
        "quickstart", {**few, "data": data, "evaluation.measures": ["f1", "auc"]}, out=tmp_path / "run"
    )
    found = predict_file(tmp_path / "run", tmp_path / "new.csv", tmp_path / "p.csv")
    assert found["columns"] == ["prediction_cold", "prediction_flu", "probability_cold", "probability_flu"]
    assert found["public"] is True
    assert (found["f1"], found["auc"]) == (
        outcome.result["f1_average_model"], pytest.approx(outcome.result["auc_average_model"])
    )  # fmt: skip
    assert "F1 " in sentences(found)[2]
    table(tmp_path / "bad.csv", "a,b,flu,cold", "1,2,0,7")
    with expect_refusal(key="bad.csv", names="yes"):
        predict_file(tmp_path / "run", tmp_path / "bad.csv", tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["=1+1", "@now"], ["'=1+1", "'@now"]),
        (["+a", "\t=b"], ["'+a", "'\t=b"]),
        (["-1", "a=b"], ["-1", "a=b"]),
    ],
)
def test_words_that_a_spreadsheet_would_run_become_text(
    command: Any, tmp_path: Path, names: list[str], written: list[str]
) -> None:
    """Names of classes come from the records. Numbers stay numbers, and other words what they are."""
    table(tmp_path / "all.csv", "a,b,y", *(f'{k},{k % 3},"{names[k % 2]}"' for k in range(60)))
    table(tmp_path / "new.csv", "a,b", "1,1", "-3,2")
    data = {"kind": "csv", "path": str(tmp_path / "all.csv"), "label": "y", "records": 30, "classes": names}
    few = {"nodes": 2, "rounds": 1, "topology.kind": "complete", "privacy.sampling": {"kind": "full"}}
    gossamer.run("quickstart", {**few, "data": data}, out=tmp_path / "run")
    code, _, err = command("predict", "run", "new.csv", "--out", "p.csv")
    assert code == 0, err
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["prediction"] for row in rows} <= set(written)
    for row in rows:
        assert 0 <= float(row[f"probability_{names[0]}"]) <= 1


def test_what_is_exported_works_without_the_run(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    found = export(outcome.directory, tmp_path / "e", node=1)
    assert {path.name for path in (tmp_path / "e").iterdir()} == set(found["files"])
    network = read_description(tmp_path / "e" / "model.json").network()
    network.load_state_dict(load_file(tmp_path / "e" / "model.safetensors"))
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert torch.equal(network(torch.from_numpy(rows)), outcome.models.outputs(rows, 1))
    card = json.loads((tmp_path / "e" / "model_card.json").read_text())
    assert card["privacy"]["epsilon_proven"] == outcome.result["epsilon_proven"]
    assert card["model"]["of"] == "node 1 of 3"
    assert "private" in card["data"]["sha256"]
    assert (tmp_path / "e" / "MODEL_CARD.md").read_text().startswith("# Model card: study\n")
    with expect_refusal(key="--out", names="empty"):
        export(outcome.directory, tmp_path / "e")


def test_a_mistake_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path).directory
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for kind, words in (
        ("pickle", "pickle"),
        ("onnx", "onnx gossamer[export]"),
    ):
        with expect_refusal(key="--format", names=words):
            export(run, tmp_path / "e", kind=kind)
    edit(run / "certificate.json", lambda c: c.update(epsilon_proven=0.01))
    with expect_refusal(key="run", names="card"):
        export(run, tmp_path / "e")
    assert not (tmp_path / "e").exists()
