"""A run verifies only if all that its certificate states is what its directory gives, and what was signed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.refusals import expect_refusal
from tests.support.signed_runs import CHANGES, edit, keep_key, rechained, relaid, resign, verdict

from gossamer.accounting.chain import digest
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.results import certificate as certificates
from gossamer.results import verify
from gossamer.results.signatures import KEY, RunKey
from gossamer.results.verify import Verdict, anchor_of, look_at, verify_files
from gossamer.training import run as run_module
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

Change = Callable[[dict[str, Any]], Any]


def test_an_untouched_run_agrees_is_signed_and_has_no_key_left(tmp_path: Path) -> None:
    execute(assemble(Plan.of(resolve(recipes.read("quickstart"), CHANGES))), out=tmp_path / "run")
    found = verdict(tmp_path / "run")
    assert found == Verdict(certified=True, signed=True, models=True)
    assert not (tmp_path / "run" / KEY).exists()
    assert found.sentences() == [
        "all chains verify and agree with the certificate", "signed by the run's key"
    ]  # fmt: skip


def test_two_runs_of_one_configuration_have_ledgers_that_differ(made: Path) -> None:
    one, two = ((made / name / "ledger.jsonl").read_text() for name in ("run", "twin"))
    headers = [json.loads(text.splitlines()[0]) for text in (one, two)]
    assert headers[0]["manifest"] != headers[1]["manifest"]


def test_a_new_field_is_one_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `certificate_of` returns is what a run signs and what `verify` compares; nothing else lists the fields."""

    def more(run: Path, *given: Any) -> dict[str, Any]:
        return {**certificates.certificate_of(run, *given), "a_new_field": {"events": 12}}

    monkeypatch.setattr(run_module, "certificate_of", more)
    monkeypatch.setattr(verify, "certificate_of", more)
    monkeypatch.setattr(RunKey, "delete", keep_key)
    execute(assemble(Plan.of(resolve(recipes.read("quickstart"), CHANGES))), out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "certificate.json").read_text())["a_new_field"] == {"events": 12}
    assert verdict(tmp_path / "run").signed
    resign(tmp_path / "run", lambda c: c["a_new_field"].update(events=11))
    with expect_refusal(key="certificate.json", names="a_new_field.events 11 12"):
        verdict(tmp_path / "run")


STATED: list[tuple[str, Change]] = [
    ("certificate.json epsilon_proven", lambda c: c.update(epsilon_proven=0.001)),
    ("certificate.json epsilon_proven", lambda c: c.update(epsilon_proven=None)),
    ("certificate.json epsilon_proven", lambda c: c.update(epsilon_proven="1")),
    ("certificate.json epsilon_claimed", lambda c: c.update(epsilon_claimed=0.001)),
    ("certificate.json delta", lambda c: c.update(delta=1e-9)),
    ("certificate.json delta", lambda c: c.update(delta=None)),
    ("certificate.json adjacency", lambda c: c.update(adjacency="replace")),
    ("certificate.json unit", lambda c: c.update(unit="one person")),
    ("certificate.json observer", lambda c: c.update(observer="a neighbour")),
    ("certificate.json epsilon_by_node[1].proven", lambda c: c["epsilon_by_node"][1].update(proven=0.5)),
    ("certificate.json epsilon_proven_lower", lambda c: c.update(epsilon_proven_lower=0.0)),
    ("certificate.json stamp", lambda c: c.update(stamp="seeded noise: no privacy")),
    ("certificate.json noise_source", lambda c: c.update(noise_source="seeded")),
    ("certificate.json public_constants", lambda c: c["public_constants"][0].update(records=10**6)),
    ("certificate.json not_proven_because", lambda c: c.update(not_proven_because="a reason")),
    ("certificate.json draws", lambda c: c.update(draws=c["draws"][:1])),
    ("certificate.json epsilon_by_node", lambda c: c.update(epsilon_by_node=[1, 2, 3])),
    ("certificate.json draws", lambda c: c["draws"].__setitem__(0, 3)),
    ("certificate.json epsilon_by_observer", lambda c: c["epsilon_by_observer"][0].update(epsilon=0.1)),
    ("certificate.json epsilon_by_observer", lambda c: c.pop("epsilon_by_observer")),
    ("certificate.json more", lambda c: c.update(more=1)),
    ("certificate.json name", lambda c: c.update(name="another")),
    ("certificate.json run", lambda c: c.update(run="0" * 16)),
    ("certificate.json started", lambda c: c.update(started="2020-01-01T00:00:00Z")),
    ("certificate.json issued", lambda c: c.update(issued="2020-01-01T00:00:00Z")),
    ("certificate.json nodes", lambda c: c.update(nodes=True)),
    ("certificate.json data.own", lambda c: c.update(data={"kind": "digits", "own": True})),
    ("certificate.json data.kind", lambda c: c.update(data={"kind": "mnist", "own": False})),
    ("certificate.json digests.configuration", lambda c: c["digests"].update(configuration="0" * 64)),
    ("certificate.json digests.data", lambda c: c["digests"].update(data=None)),
    ("certificate.json digests.models", lambda c: c["digests"]["models"].__setitem__(1, "0" * 64)),
    ("run TypeError", lambda c: c.update(digests=[])),
    ("run ValueError", lambda c: c["digests"]["models"].pop()),
    ("certificate.json signed", lambda c: c.update(key="00" * 32)),
    ("run KeyError", lambda c: c.pop("versions")),
]


@pytest.mark.parametrize(("what", "change"), STATED)
def test_every_field_is_compared_also_where_the_operator_signed_another(run: Path, what: str, change: Change) -> None:
    with expect_refusal(names=what):
        verdict(resign(run, change))


def test_figures_may_be_rounded_and_upper_bounds_be_a_little_larger(run: Path) -> None:
    resign(run, lambda c: c.update(epsilon_proven=c["epsilon_proven"] * 1.005))
    assert verdict(run).signed
    with expect_refusal(key="certificate.json", names="epsilon_proven"):
        verdict(resign(run, lambda c: c.update(epsilon_proven=c["epsilon_proven"] * 0.99)))


def test_nobody_without_the_key_changes_the_certificate(run: Path) -> None:
    edit(run / "certificate.json", lambda c: c.update(issued="2030-01-01T00:00:00Z"))
    with expect_refusal(key="certificate.json", names="signed"):
        verdict(run)
    with expect_refusal(key="certificate.json", names="signed"):
        verify_files(run)
    edit(run / "certificate.json", lambda c: c.pop("signature"))
    with expect_refusal(key="certificate.json", names="signature"):
        verify_files(run)


def test_a_certificate_signed_by_a_new_key_is_not_the_runs(run: Path, tmp_path: Path) -> None:
    key = RunKey.create(tmp_path)
    content = json.loads((run / "certificate.json").read_text())
    (run / "certificate.json").write_text(json.dumps(key.sign({**content, "key": key.public})))
    with expect_refusal(key="certificate.json", names="key"):
        verify_files(run)
    edit(run / "manifest.json", lambda m: m.update(key=key.public))
    with expect_refusal(key="ledger.jsonl", names="belongs"):
        verify_files(run)


def test_a_run_does_not_become_another_one(run: Path, made: Path) -> None:
    edit(run / "manifest.json", lambda m: m.update(dimension=3))
    with expect_refusal(key="ledger.jsonl", names="belongs"):
        verdict(run)
    shutil.copy(made / "twin" / "manifest.json", run)
    with expect_refusal(key="ledger.jsonl", names="belongs"):
        verdict(run)
    shutil.copy(made / "twin" / "ledger.jsonl", run)
    for name in ("config.toml", "topology.json", "plan.json"):
        shutil.copy(made / "twin" / name, run)
    with expect_refusal(key="certificate.json", names="signed"):
        verdict(run)


def noise_times_ten(event: dict[str, Any]) -> None:
    event["sigma"] *= 10


def test_ten_times_the_noise_chained_again_is_noticed(run: Path) -> None:
    rechained(run / "ledger.jsonl", noise_times_ten)
    with expect_refusal(key="ledger.jsonl", names="signed"):
        verdict(run)


def test_tails_cut_back_to_a_checkpoint_are_noticed(run: Path) -> None:
    path = run / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[:3]
    path.write_bytes(b"".join(lines))
    heads = [digest(lines[-1])] * 3
    with expect_refusal(key="ledger.jsonl", names="signed"):
        verify_files(run)
    edit(run / "certificate.json", lambda c: c.update(ledger_heads=heads, draws=[2] * 3))
    with expect_refusal(key="certificate.json", names="signed"):
        verdict(run)


def test_every_file_is_what_was_signed_and_some_may_be_gone(run: Path) -> None:
    for name in (
        "metrics.jsonl",
        "checkpoints/round-000002.safetensors",
        "topology.json",
        "plan.json",
        "end.json",
    ):
        path = run / name
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"0", b"1", 1))
        with expect_refusal(path.name):
            verdict(run)
        path.write_bytes(whole)
    (run / "checkpoints" / "round-000002.safetensors").unlink()
    (run / "models.safetensors").unlink()
    assert verdict(run) == Verdict(certified=True, signed=True, models=False)
    (run / "metrics.jsonl").unlink()
    with expect_refusal(key="metrics.jsonl", names="missing"):
        verdict(run)


def test_ledgers_that_are_missing_or_too_many_are_noticed(run: Path) -> None:
    shutil.copy(run / "ledger.jsonl", run / "ledger-003.jsonl")
    with expect_refusal(key="ledger-003.jsonl"):
        verify_files(run)
    (run / "ledger-003.jsonl").unlink()
    (run / "ledger.jsonl").unlink()
    with expect_refusal(key="ledger.jsonl", names="missing"):
        verify_files(run)
    with expect_refusal(key="run", names="ledger", remedy=True):
        verdict(resign(run))


def test_a_ledger_of_too_few_nodes_is_noticed(run: Path) -> None:
    relaid(run, [range(2)])
    with expect_refusal(key="run", names="2"):
        verdict(resign(run))


def test_the_page_shows_what_the_certificate_states(run: Path) -> None:
    path = run / "certificate.html"
    path.write_text(path.read_text().replace("0", "1", 1))
    with expect_refusal(key="certificate.html", names="show"):
        verdict(run)
    path.unlink()
    assert verdict(run).signed


def test_models_of_another_run_are_noticed(run: Path) -> None:
    path = run / "models.safetensors"
    save_file({name: torch.zeros_like(value) for name, value in load_file(path).items()}, path)
    with expect_refusal(key="models.safetensors", names="signed"):
        verdict(run)
    with expect_refusal(key="certificate.json", names="digests.models[0]"):
        verdict(resign(run))


def test_an_audits_figures_may_be_added_and_nothing_else(run: Path) -> None:
    (run / "certificate.html").unlink()
    edit(run / "certificate.json", lambda c: c.update(epsilon_audited=0.1, violation=False, violated=[]))
    assert verdict(run).signed
    edit(run / "certificate.json", lambda c: c.update(notes=["all is well"]))
    with expect_refusal(key="certificate.json", names="signed"):
        verdict(run)


def test_a_key_that_is_left_makes_a_signature_worthless(run: Path) -> None:
    RunKey.create(run)
    found = verdict(run)
    assert not found.signed
    assert "run.key is still there" in found.sentences()[1]


def test_an_anchor_pins_the_run_and_its_certificate(run: Path, made: Path, killed: Path) -> None:
    line = anchor_of(run)
    assert "\n" not in line
    assert verdict(run, line).anchored
    assert verdict(run, line).sentences()[-1] == "as published in the anchor"
    with expect_refusal(key="run", names="anchor"):
        verdict(run, anchor_of(made / "twin"))
    for wrong in ("", "gossamer:1", line[:-1], line.replace("gossamer:1", "gossamer:2")):
        with expect_refusal(names="anchor"):
            verdict(run, wrong)
    early = line.rpartition(":")[0] + ":"  # published while the run was going on
    assert verdict(run, early).anchored
    assert verdict(killed, anchor_of(killed)).anchored
    resign(run, lambda c: c.update(issued="2030-01-01T00:00:00Z"))
    assert verify_files(run, early).signed
    with expect_refusal(key="certificate.json", names="anchor"):
        verify_files(run, line)


def test_ledgers_alone_are_not_said_to_agree_with_anything(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    shutil.copy(run / "ledger.jsonl", tmp_path / "bare")
    assert verdict(tmp_path / "bare") == Verdict(certified=False, unsigned_because="there is no manifest")
    with expect_refusal(key="bare", names="anchor"):
        verdict(tmp_path / "bare", anchor_of(run))


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six rounds that was killed after the fifth."""
    place = tmp_path_factory.mktemp("killed") / "run"

    def stop(done: int) -> None:
        if done == 5:
            raise SystemExit  # as a kill would: nothing is written any more

    parts = assemble(Plan.of(resolve(recipes.read("quickstart"), {**CHANGES, "rounds": 6})))
    with pytest.raises(SystemExit):
        execute(parts, out=place, on_round=stop)
    return place


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed_once, tmp_path / "killed")


def test_a_killed_run_is_not_signed_and_its_first_files_are_checked(killed: Path) -> None:
    found = verdict(killed)
    assert not found.signed
    assert "not signed: the run has not ended" in found.sentences()[1]
    assert verify_files(killed) == look_at(killed) == found
    edit(killed / "plan.json", lambda plan: plan.update(delta=1e-9))
    with expect_refusal(key="plan.json", names="began"):
        verify_files(killed)


def test_a_certificate_that_is_gone_is_missed(run: Path) -> None:
    (run / "certificate.json").unlink()
    with expect_refusal(key="certificate.json", names="missing"):
        verify_files(run)


def test_what_is_only_shown_is_verified_too_and_says_so_instead_of_ending(run: Path) -> None:
    assert look_at(run) == verdict(run)
    resign(run, lambda c: c.update(epsilon_proven=0.001))
    (said,) = look_at(run).sentences()
    assert said.startswith("this does not verify: ")
    assert "epsilon_proven" in said


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(digests={"files": {"../../x": "0"}, "models": 7}),
        lambda c: c.update(digests={"files": [], "models": []}),
        lambda c: c.update(versions=7),
        lambda c: c.update(issued="\x1b[2J"),
    ],
)
def test_a_signature_over_nonsense_is_a_sentence_too(run: Path, change: Change) -> None:
    found = look_at(resign(run, change))
    assert found.broken is not None
    assert "\x1b" not in found.broken


@pytest.fixture(scope="module")
def made_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of four nodes that share noise, on full lots."""
    base = tmp_path_factory.mktemp("shared")
    changes = {**CHANGES, "nodes": 4, "privacy.noise.kind": "pairwise", "privacy.sampling": {"kind": "full"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunKey, "delete", keep_key)
        execute(assemble(Plan.of(resolve(recipes.read("quickstart"), changes))), out=base / "run")
    return base


def all_cheaper(c: dict[str, Any]) -> None:
    for point in c["epsilon_by_colluders"]:
        point["epsilon"] *= 0.9
    for line in c["epsilon_by_observer"]:
        line["epsilon"] *= 0.9


BY_OBSERVER: list[Change] = [
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=c["epsilon_by_colluders"][2]["epsilon"]),
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=None),
    lambda c: c["epsilon_by_colluders"].pop(),
    lambda c: c["epsilon_by_colluders"].append({"colluders": 4, "epsilon": 9.0}),
    lambda c: c["epsilon_by_observer"][-1].update(words="a neighbour"),
    lambda c: c["epsilon_by_observer"][0].update(planned=True),
    all_cheaper,
]


@pytest.mark.parametrize("change", BY_OBSERVER)
def test_every_figure_by_observer_is_compared(made_shared: Path, tmp_path: Path, change: Change) -> None:
    run = shutil.copytree(made_shared / "run", tmp_path / "shared")
    with expect_refusal(key="certificate.json", names="epsilon_by_"):
        verdict(resign(run, change))
