"""The engineer's walk: four sites' tables, a private model, predictions on new rows, a file for production, a card."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.refusals import assert_names

from gossamer.results.trained import read_description

NAMES, CLASSES = ["age", "dose", "pressure"], ["healthy", "ill"]
RANGES = {"age": [0.0, 100.0], "dose": [0.0, 8.0], "pressure": [60.0, 200.0]}
CONFIG = """
name = "clinics"
nodes = 4
rounds = 20

[data]
kind = "csv"
path = "site-{node}.csv"
test = "public.csv"
label = "diagnosis"
classes = ["healthy", "ill"]
records = 80
ranges = { age = [0.0, 100.0], dose = [0.0, 8.0], pressure = [60.0, 200.0] }

[model]
kind = "softmax"

[topology]
kind = "ring"

[algorithm]
kind = "dp-dsgd"
lr = 1.0

[privacy]
epsilon = 8.0
sampling = { kind = "full" }
clip = { kind = "constant", bound = 1.0 }
noise = { schedule = { kind = "constant" } }
"""


def write(path: Path, rows: int, seed: int, order: list[str], *, label: bool = True) -> None:
    """Patients, their columns in some order; old ones with a high dose are ill."""
    rng = np.random.default_rng(seed)
    x = {name: rng.uniform(*RANGES[name], rows) for name in NAMES}
    ill = x["age"] / 100 + x["dose"] / 8 > 1
    head = [*order, *(["diagnosis"] if label else [])]
    lines = [
        [*(f"{x[name][i]:.4f}" for name in order), *([CLASSES[int(ill[i])]] if label else [])] for i in range(rows)
    ]
    path.write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n")


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    for node in range(4):
        write(tmp_path / f"site-{node}.csv", 80, node, [NAMES[(i + node) % 3] for i in range(3)])
    write(tmp_path / "public.csv", 150, 9, NAMES)
    write(tmp_path / "new.csv", 7, 10, ["pressure", "dose", "age"], label=False)
    (tmp_path / "clinics.toml").write_text(CONFIG)
    return tmp_path


def told(answer: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = answer
    assert code == 0, err
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def test_from_four_tables_to_predictions_and_a_card(command: Any, sites: Path) -> None:
    result = told(command("run", "clinics.toml", "--out", "run", "--json"))
    assert result["epsilon_proven"] <= 8.0
    judged = told(command("predict", "run", "public.csv", "--json"))
    assert judged["accuracy"] == result["accuracy_average_model"] > 0.7
    assert judged["public"]

    code, out, err = command("predict", "run", "new.csv", "--out", "p.csv", "--node", "2")
    assert (code, err) == (0, "")
    assert out == "7 rows predicted: p.csv\nmodel: node 2 of 4\n"
    predicted = list(csv.DictReader((sites / "p.csv").open()))
    assert {row["prediction"] for row in predicted} <= set(CLASSES)
    assert list(predicted[0]) == ["prediction", "probability_healthy", "probability_ill"]

    code, out, err = command("export", "run", "--node", "2", "--out", "model")
    assert code == 0, err
    assert out.splitlines() == [
        "model/model.safetensors",
        "model/model.json",
        "model/MODEL_CARD.md",
        "model/model_card.json",
        "model: node 2 of 4",
    ]
    description = read_description(sites / "model" / "model.json")
    network = description.network()
    network.load_state_dict(load_file(sites / "model" / "model.safetensors"), strict=False)
    columns = json.loads((sites / "model" / "model_card.json").read_text())["inputs"]["columns"]
    new = list(csv.DictReader((sites / "new.csv").open()))
    table = np.array([[float(row[name]) for name in columns] for row in new], dtype=np.float32)
    rows = torch.from_numpy(description.inputs.prepared(table))
    assert [CLASSES[i] for i in network(rows).argmax(1)] == [row["prediction"] for row in predicted]
    card = (sites / "model" / "MODEL_CARD.md").read_text()
    for words in (
        "Proven: ε = ",
        "at δ = 1e-05",
        "Classes: healthy, ill",
        r"column age: \[0, 100\] becomes \[0, 1\]",
    ):
        assert words in card


def test_what_goes_wrong_is_one_sentence_and_exit_2(command: Any, sites: Path) -> None:
    told(command("run", "clinics.toml", "--out", "run", "--set", "rounds=1", "--json"))
    write(sites / "short.csv", 3, 1, ["age", "dose"])
    (sites / "strange.csv").write_text("age,dose,pressure,diagnosis\n50,4,90,unwell\n")
    for words, said in (
        (["predict", "run", "short.csv"], "short.csv pressure"),
        (["predict", "run", "strange.csv"], "strange.csv labels classes"),
        (
            ["predict", "run", "new.csv", "--node", "4"],
            "node 4 0 3 average",
        ),
        (["predict", "run", "new.csv", "--module", "net.py:Net"], "--module net.py"),
        (["predict", "elsewhere", "new.csv"], "elsewhere directory"),
        (["export", "run", "--format", "pickle", "--out", "e"], "--format pickle"),
    ):
        code, _, err = command(*words)
        assert code == 2, (words, err)
        assert err.startswith("gossamer: "), err
        assert len(err.strip().splitlines()) == 1, err
        assert_names(err, names=said)
    assert not (sites / "predictions.csv").exists()
