"""The commands as a user types them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.refusals import assert_names, expect_refusal
from torch import nn

import gossamer

SHORT = ["--set", "rounds=8", "--set", "evaluation.every=4"]
DINNO = ["--set", "algorithm.kind=dp-dinno", "--set", "topology.kind=ring"]


def test_run_ends_with_one_json_object(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("run", "quickstart", "--json", *SHORT, "--out", "r")
    assert code == 0
    result = json.loads(out.strip().splitlines()[-1])
    for key in (
        "accuracy_mean", "accuracy_min", "accuracy_max", "consensus_distance", "epsilon_claimed", "epsilon_proven",
        "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because", "delta", "adjacency", "observer",
        "rounds", "nodes", "seconds", "bytes_sent", "run_dir",
    ):  # fmt: skip
        assert key in result
    assert 0 < result["epsilon_proven"] <= 8.0
    assert result["bytes_sent"] == 8 * 8 * 4 * (650 + 1)
    for name in ("config.toml", "manifest.json", "topology.json", "metrics.jsonl", "ledger.jsonl"):
        assert (tmp_path / "r" / name).is_file()
    assert [json.loads(line)["round"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()] == [4, 8]


def test_plan_has_the_same_privacy_fields_without_training(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("plan", "quickstart", "--json", *SHORT)
    planned = json.loads(out.strip().splitlines()[-1])
    assert code == 0
    assert list(tmp_path.iterdir()) == []
    _, out, _ = command("run", "quickstart", "--json", *SHORT, "--out", "r")
    ran = json.loads(out.strip().splitlines()[-1])
    for key in ("epsilon_claimed", "epsilon_proven", "delta", "adjacency", "nodes", "rounds"):
        assert planned[key] == pytest.approx(ran[key])


def test_ledger_alone_gives_the_same_epsilon_and_shows_tampering(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = command("run", "quickstart", "--json", *SHORT, "--out", "r")
    ran = json.loads(out.strip().splitlines()[-1])
    _, out, _ = command("plan", "--ledger", "r", "--json")
    again = json.loads(out.strip().splitlines()[-1])
    assert again["epsilon_proven"] == pytest.approx(ran["epsilon_proven"], rel=1e-9)
    assert again["matches_certificate"] is True
    ledger = tmp_path / "r" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    for damaged in (
        [*lines[:3], lines[3].replace('"sigma":', '"sigma":9'), *lines[4:]],
        [*lines[:3], *lines[4:]],
        [*lines[:3], lines[4], lines[3], *lines[5:]],
        lines[:-1],
    ):
        ledger.write_text("".join(damaged))
        code, _, err = command("plan", "--ledger", "r")
        assert code == 2
        assert_names(err, "ledger.jsonl")
        assert "Traceback" not in err
    ledger.write_text("".join(lines))
    assert command("plan", "--ledger", "r")[0] == 0


@pytest.mark.slow
def test_every_inner_step_of_dinno_is_in_the_ledger(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    inner = ["--set", "algorithm.steps=3", "--set", "algorithm.persistent=true"]
    code, out, _ = command("run", "--json", *SHORT, *DINNO, *inner, "--out", "r")
    assert code == 0
    result = json.loads(out.splitlines()[-1])
    assert 0 < result["epsilon_proven"] <= 8.0
    assert json.loads((tmp_path / "r" / "certificate.json").read_text())["draws"] == [24] * 8
    assert result["bytes_sent"] == 8 * 16 * 4 * (650 + 1)
    assert {k: tuple(v.shape) for k, v in load_file(tmp_path / "r" / "checkpoints" / "round-000008.safetensors").items()} == {
        "x": (8, 650), "y": (8, 650), "first": (8, 650), "second": (8, 650), "taken": (8, 1), "gradient.draws": (),
    }  # fmt: skip


def test_seeded_noise_is_stamped_and_repeats(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runs = [
        json.loads(
            command("run", "--json", *SHORT, "--set", "privacy.noise.source=seeded", "--out", name)[1].splitlines()[-1]
        )
        for name in ("a", "b")
    ]
    assert runs[0]["accuracy_by_node"] == runs[1]["accuracy_by_node"]
    certificate = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert certificate["stamp"] == "seeded noise: no privacy"
    assert "seeded noise: no privacy" in (tmp_path / "a" / "manifest.json").read_text()
    assert "seeded noise: no privacy" in (tmp_path / "a" / "ledger.jsonl").read_text()
    one, two = (torch.load if False else _checkpoint)(tmp_path / "a"), _checkpoint(tmp_path / "b")
    assert all(torch.equal(one[key], two[key]) for key in one)


def _checkpoint(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(next((run / "checkpoints").glob("*.safetensors")))


def test_system_noise_never_repeats(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("a", "b"):
        assert command("run", *SHORT, "--out", name)[0] == 0
    assert not torch.equal(_checkpoint(tmp_path / "a")["x"], _checkpoint(tmp_path / "b")["x"])


CSV = "x1,x2,label\n" + "\n".join(f"{i % 7},{i % 5},{i % 2}" for i in range(60)) + "\n"
OWN = [
    "--set",
    "data.kind=csv",
    "--set",
    "data.path=own.csv",
    "--set",
    "data.label=label",
    "--set",
    "data.records=7",
    "--set",
    "data.classes=2",
]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "--set", "rouds=3"], ["rouds", "rounds"]),
        (["run", "--set", "privacy.epsilon=0"], ["privacy.epsilon", "greater than 0"]),
        (["run", "--set", "privacy.delta=1"], ["privacy.delta", "at most 0.1"]),
        (["run", "--set", "model.kind=transformer"], ["model.kind", "transformer", "softmax"]),
        (["run", "--set", "model.hiden=[3]"], ["hiden"]),
        (["run", "--set", "data.kind=imagenet"], ["data.kind", "imagenet", "digits"]),
        (["run", "--set", "topology.kind=mesh"], ["topology.kind", "mesh", "ring"]),
        (["run", "--set", "topology.kind=ring", "--set", "nodes=1"], ["topology.kind", "ring", "nodes = 1"]),
        (["run", "--set", "data.partition.kind=thirds"], ["thirds", "even"]),
        (["run", "--set", "nodes=5000"], ["5000"]),
        (["run", "--set", "algorithm.kind=dp-dsgd", "--set", "topology.kind=digraph"], ["digraph", "doubly", "ring"]),
        (["run", "--set", "algorithm.impetus=0.9"], ["algorithm.impetus", "lr"]),
        (["run", "--set", "algorithm.weights=column"], ["algorithm.weights", "not a key of kind 'dyn-d2p'"]),
        (["run", *DINNO, "--set", "algorithm.steps=0"], ["algorithm.steps = 0", "at least 1"]),
        (["run", *DINNO, "--set", "algorithm.rho=-1"], ["algorithm.rho = -1", "greater than 0"]),
        (["run", *DINNO, "--set", "algorithm.optimiser=sgd"], ["algorithm.optimiser = 'sgd'", "adam", "plain"]),
        (["run", *DINNO, "--set", "algorithm.persistent=often"], ["algorithm.persistent = 'often'", "true or false"]),
        (["run", "--set", "algorithm.kind=dp-dinno"], ["one-peer-exponential", "undirected", "ring"]),
        (["run", "--set", "privacy.sampling.lot=1000"], ["privacy.sampling.lot", "1000", "180"]),
        (["run", "--set", "privacy.clip.kind=none"], ["privacy.clip.kind", "none", "constant"]),
        (["run", "no/such"], ["no/such", "gossamer recipes"]),
        (["run", "gone.toml"], ["gone.toml"]),
        (["run", "broken.toml"], ["broken.toml", "TOML"]),
        (["run", *OWN, "--set", "data.label=colour"], ["colour", "x1, x2, label"]),
        (["run", *OWN, "--set", "data.path=nan.csv"], ["x1", "nan.csv"]),
        (["run", *OWN[:-2]], ["data.classes"]),
        (["run", *OWN[:6], *OWN[8:]], ["data.records"]),
        (["run", "--set", "device=tpu"], ["device", "tpu"]),
        (["run", "--set", "device=cuda"], ["device", "cuda", "cpu"]),
        (["run", "--set", "privacy.clip.start=1e39"], ["privacy.clip.start", "1e+39"]),
        (["run", "--set", "baseline=central", "--set", "data.partition={kind=\"sampled\",size=100}"], ["sampled", "copies"]),
        (["run", "dyn-d2p/fashion-mnist", "--data-dir", "bad"], ["fashion", "refused"]),
        (["plan", "--ledger", "nowhere"], ["nowhere"]),
        (["data", "get", "imagenet"], ["imagenet", "mnist"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_exit_2_and_leaves_nothing(
    command, tmp_path: Path, words: list[str], named: list[str]
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own.csv").write_text(CSV)
    (tmp_path / "nan.csv").write_text(CSV.replace("\n3,", "\nnan,"))
    (tmp_path / "broken.toml").write_text("nodes = = 3")
    (tmp_path / "bad").mkdir()
    x, y = np.zeros((4, 28, 28), np.uint8), np.zeros(4, np.int64)
    np.savez(tmp_path / "bad" / "fashion_mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    before = sorted(tmp_path.iterdir())
    code, out, err = command(*words)
    assert code == 2
    assert "Traceback" not in err
    # On a slow machine a line like "calibrating the noise …" says what takes long.
    assert len([line for line in err.strip().splitlines() if not line.endswith("…")]) == 1
    for word in named:
        assert word in err
    assert sorted(tmp_path.iterdir()) == before
    assert out == ""


def test_an_existing_directory_is_not_overwritten(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.txt").write_text("precious")
    code, _, err = command("run", *SHORT, "--out", "r")
    assert code == 2
    assert_names(err, "--out", "r")
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["thesis.txt"]


def test_own_table_with_owners_becomes_the_partition(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{i % 7},{i % 5},{'AB'[i % 2]},clinic-{'xyz'[i % 3]}" for i in range(90)]
    (tmp_path / "own.csv").write_text("x1,x2,label,site\n" + "\n".join(rows) + "\n")
    code, out, _ = command(
        "run", "--json", *OWN, "--set", 'data.classes=["A", "B"]', "--set", "data.owner=site", "--set", "data.records=30", "--set", "nodes=3",
        "--set", "topology.kind=complete", *SHORT, "--out", "r",
    )  # fmt: skip
    assert code == 0
    result = json.loads(out.splitlines()[-1])
    assert "accuracy_mean" not in result  # no public hold-out was declared: nothing is measured on private records
    assert result["epsilon_proven"] <= 8.0


def test_own_module_and_a_layer_that_mixes_records(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    outcome = gossamer.run("quickstart", {"rounds": 4}, module=net, out=tmp_path / "r")
    assert outcome.points.shape == (8, 64 * 16 + 16 + 16 * 10 + 10)
    mixing = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    with expect_refusal(key="model", names="BatchNorm1d", remedy=True):
        gossamer.run("quickstart", {"rounds": 4}, module=mixing, out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_recipes_and_data_are_listed(command) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = command("recipes")
    assert "quickstart" in out
    assert "dyn-d2p/fashion-mnist" in out
    _, out, _ = command("data", "list", "--json")
    names = [row["name"] for row in json.loads(out)]
    assert {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "covertype"} <= set(names)


def test_the_schema_is_printed_for_people_and_programs(command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("recipes", "--schema")
    assert code == 0
    assert out.startswith("# Configuration")
    assert "## `[topology]`" in out
    _, printed, _ = command("recipes", "--schema", "--json")
    tables = {entry["table"]: entry for entry in json.loads(printed)}
    (p,) = next(k["options"] for k in tables["topology"]["kinds"] if k["kind"] == "erdos-renyi")
    assert p == {
        "name": "p", "type": "number above 0 up to 1", "required": True, "meaning": "probability of an edge",
    }  # fmt: skip


def test_help_is_quick_because_torch_stays_out() -> None:
    start = time.perf_counter()
    code = "import sys; sys.argv = ['gossamer', '--help']\ntry:\n    from gossamer.cli import main; main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert "run" in done.stdout
    assert time.perf_counter() - start < 60  # a hang, not a benchmark


def test_heavy_modules_stay_out_of_the_first_second(tmp_path: Path) -> None:
    """Each of them takes longer than all of this package. Who needs one imports it where it is used."""
    heavy = [
        "dp_accounting",
        "matplotlib",
        "networkx",
        "pandas",
        "scipy.signal",
        "scipy.stats",
        "sklearn",
        "sympy",
    ]
    code = f"""
import sys
from gossamer.cli import main
for command in ("plan quickstart", "run quickstart --set rounds=2"):
    sys.argv = ["gossamer", *command.split()]
    try:
        main()
    except SystemExit:
        pass
    print()
    print(command, [name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert re.findall(r"^(\w+) quickstart.* (\[.*\])$", done.stdout, re.M) == [("plan", "[]"), ("run", "[]")]


def test_an_anchor_is_one_line_that_a_run_is_held_against(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fixed = ["--set", "nodes=2", "--set", "rounds=1", "--set", "topology.kind=complete"]
    assert command("run", "--out", "r", *fixed, "--set", "privacy.claim=none", "--json")[0] == 0
    code, line, _ = command("certificate", "anchor", "r")
    assert code == 0
    assert len(line.splitlines()) == 1
    code, out, _ = command("plan", "--ledger", "r", "--anchor", line.strip(), "--json")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["matches_certificate"], found["signed"], found["anchored"]) == (0, True, True, True)
    code, _, err = command("plan", "--ledger", "r", "--anchor", line.strip()[:-1] + "x")
    assert code == 2
    assert_names(err, "certificate.json", names="anchor")
    assert command("plan", "--anchor", line.strip())[0] == 2


def test_a_file_that_cannot_be_used_is_named_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gossamer.cli import main

    (tmp_path / "taken").write_text("")
    monkeypatch.setattr(sys, "argv", ["gossamer", "peer", "demo", "--out", str(tmp_path / "taken")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert str(tmp_path / "taken") in said[0]
