"""Private components in whole runs: priced with training, on file, recomputed, never drawn twice."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.configurations import configured, outlined
from tests.support.ledgers import resumed
from tests.support.refusals import expect_refusal
from tests.support.signed_runs import edit
from tests.support.without_replacement import DIGITS

import gossamer
from gossamer.accounting.budget import default_folder
from gossamer.accounting.ledger import LedgerBook, LedgerError, read_all
from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import recompute
from gossamer.accounting.releases import Event, Gaussian
from gossamer.auditing.attacks import attack_of
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.mechanism.summaries import SecondMoment, private_totals
from gossamer.results.certificate import certificate_of
from gossamer.results.rundir import RunDirectory
from gossamer.results.verify import malformed_as_user_error, verify_run
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.preprocess import preprocessed
from gossamer.training.run import execute

FILE = "components.safetensors"
PRIVATE: dict[str, Any] = {"data__pca": 12, "data__pca_from": "private", "privacy__preprocessing": 0.5}
GOSSIP: dict[str, Any] = {
    **PRIVATE,
    "rounds": 6,
    "data__scale": "unit-ball",
    "model": {"kind": "softmax"},
    "privacy__sampling": {"kind": "full"},
    "privacy__epsilon": 4.0,
    "privacy__delta": 1e-5,
    "checkpoints__every": 2,
}


PUBLIC = {"data__pca_from": "train", "privacy__preprocessing": None, "baseline": "non-private"}


def run(tmp_path: Path, base: Any = DIGITS, **changes: Any) -> Any:
    parts = assemble(Plan.of(configured(base, **{**PRIVATE, **changes})))
    return execute(parts, out=tmp_path / f"run-{len(list(tmp_path.iterdir()))}")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_what_the_moments_cost_alone_and_all_is_met_together(adjacency: str, share: float) -> None:
    plan = outlined(
        DIGITS, **{**PRIVATE, "privacy__preprocessing": share}, privacy__adjacency=adjacency,
        algorithm__controller="pass-end",
    ).privacy  # fmt: skip
    (before,) = plan.worst.before
    assert proven([before], 1e-6, adjacency).epsilon == pytest.approx(share, rel=1e-6)
    assert 0.99 < plan.worst.proven.epsilon <= 1.0
    # In closed form: μ² of the moments and of the passes add up.
    swap = 2 if adjacency == "replace-one" else 1
    passes = math.ceil(36 / 45)
    squared = gdp_mu(share, 1e-6) ** 2 + passes * (swap / plan.worst.factor) ** 2
    assert gdp_epsilon(math.sqrt(squared), 1e-6) == pytest.approx(plan.worst.proven.epsilon, rel=1e-6)


def test_copies_and_runs_pay_for_their_moments_too() -> None:
    one = outlined(DIGITS, **PRIVATE).privacy
    for changes in ({"privacy__runs": 4}, {"data__partition": {"kind": "sampled", "size": 300}}):
        four = outlined(DIGITS, **PRIVATE, **changes).privacy
        ratio = four.worst.before[0].release.noise_multiplier / one.worst.before[0].release.noise_multiplier
        assert ratio == pytest.approx(2.0, rel=1e-6)


def test_ledger_certificate_and_recomputation_agree(tmp_path: Path) -> None:
    out = run(tmp_path, algorithm__controller="pass-end", rounds=72)
    for _, events in read_all(out.directory).values():
        assert events[0].draw == -1
        assert events[0].release.sampling == "full"
        assert all(event.draw >= 0 for event in events[1:])
    proofs = recompute(out.directory)
    verify_run(out.directory)
    assert out.result["epsilon_proven"] == proofs[0].proven.epsilon
    assert 0.9 < out.result["epsilon_proven"] <= 1.0
    # Training alone would be said to cost less.
    _, events = read_all(out.directory)[0]
    assert proven(events[1:], 1e-6, "replace-one").epsilon < 0.97 * out.result["epsilon_proven"]
    first = json.loads((out.directory / "metrics.jsonl").read_text().splitlines()[0])
    assert first["epsilon_proven"] > 0.5  # before anything was trained


def test_models_see_the_components_and_learn_from_them(tmp_path: Path) -> None:
    noisy = run(tmp_path, "quickstart", **{**GOSSIP, "rounds": 30, "privacy__epsilon": 30.0})
    basis = load_file(noisy.directory / FILE)["components"].numpy()
    assert basis.shape == (12, 64)
    assert basis @ basis.T == pytest.approx(np.eye(12), abs=1e-4)
    assert noisy.points.shape[1] == 12 * 10 + 10
    n, models = noisy.result["nodes"], run(tmp_path, "quickstart", **{**GOSSIP, "rounds": 30, **PUBLIC})
    moments = n * (n - 1) * 4 * (64 * 65 // 2)  # everyone's to all others
    assert noisy.result["bytes_sent"] - models.result["bytes_sent"] == moments
    assert noisy.result["accuracy_mean"] > 0.6
    silent = run(tmp_path, "quickstart", **{**GOSSIP, "rounds": 30}, baseline="non-private")
    assert silent.result["epsilon_proven"] is None
    digits = outlined("quickstart", **GOSSIP).dataset
    rows = digits.x_train.reshape(len(digits.x_train), -1)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    leading = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :12].T
    exact = load_file(silent.directory / FILE)["components"].numpy()
    assert np.abs((exact * leading).sum(1)) == pytest.approx(np.ones(12), abs=1e-3)


def test_new_rows_get_the_components_that_training_rows_got(tmp_path: Path) -> None:
    changes = {**GOSSIP, "privacy__epsilon": 30.0}
    out = run(tmp_path, "quickstart", **changes)
    raw = outlined("quickstart", **changes).dataset
    for models in (out.models, gossamer.load(out.directory).models):
        right = (models.predict(raw.x_test, node=0) == raw.y_test).mean()
        assert right == pytest.approx(out.result["accuracy_by_node"][0], abs=1e-6)
    inputs = out.models.description.inputs
    with expect_refusal(key="description", names="12"):
        replace(inputs, components=inputs.components[:-8]).prepared(raw.x_test)


def stopped_run(folder: Path) -> Path:
    def stop(t: int) -> None:
        if t == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(assemble(Plan.of(configured("quickstart", **GOSSIP))), out=folder, on_round=stop)
    return folder


def test_a_run_that_goes_on_takes_the_components_that_were_released(tmp_path: Path) -> None:
    stopped = stopped_run(tmp_path / "run")
    before = (stopped / FILE).read_bytes()
    out = execute(assemble(Plan.of(configured("quickstart", **GOSSIP))), resume=stopped)
    assert (stopped / FILE).read_bytes() == before
    for _, events in read_all(stopped).values():
        assert [event.draw for event in events].count(-1) == 1
    verify_run(stopped)
    assert out.result["epsilon_proven"] <= 4.0


def test_a_run_whose_components_are_lost_does_not_draw_new_ones(tmp_path: Path) -> None:
    stopped = stopped_run(tmp_path / "run")
    (stopped / FILE).unlink()
    with expect_refusal(key="draw", names="1 0"):
        execute(assemble(Plan.of(configured("quickstart", **GOSSIP))), resume=stopped)
    assert not (stopped / FILE).exists()


def test_moments_on_file_are_never_drawn_again(tmp_path: Path) -> None:
    """Killed between the event and the file: the noise is gone with its key, and new noise would be a second release."""
    header = {0: {"delta": 1e-5, "adjacency": "add-remove", "unit": "one record of one node", "noise": "system"}}
    records = Records(torch.eye(3), torch.zeros(3), [3])

    def draw(book: LedgerBook, seed: int) -> torch.Tensor:
        event = Event(-1, Gaussian(sigma=2.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove"))
        return private_totals(SecondMoment(3), records, [0], events=[event], stream=Stream.seeded(seed), book=book)

    book = LedgerBook.create(tmp_path / "ledger.jsonl", header, sync=False)
    first = draw(book, 0)
    book.close()
    again = resumed(tmp_path, header)
    assert again.next_draw == 0  # the draws begin where they would have
    with expect_refusal(key="draw", names="1 0", error=LedgerError):
        draw(again, 1)
    again.close()
    seeded = resumed(tmp_path, header, repeats=True)
    assert torch.equal(draw(seeded, 0), first)  # one release, written once
    seeded.close()
    assert len(read_all(tmp_path)[0][1]) == 1


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    save_file({"components": torch.zeros(3, 64)}, tmp_path / FILE)
    parts = assemble(Plan.of(configured(DIGITS, **PRIVATE)))
    with expect_refusal(key="components.safetensors", names="3 64"):
        preprocessed(parts, Alone(4), None, RunDirectory(tmp_path))  # type: ignore[arg-type]


REFUSED = [
    ({"privacy__preprocessing": None}, "data.pca_from private privacy.preprocessing"),
    ({"data__pca_from": "mnist"}, "privacy.preprocessing 0.5"),
    ({"mode": "paper"}, "data.pca_from private"),
    ({"privacy__epsilon": None}, "data.pca_from private privacy.epsilon"),
    ({"baseline": "no-communication"}, "data.pca_from private"),
    ({"data__pca": 65}, "data.pca 65"),
    ({"privacy__preprocessing": 1.0}, "privacy.preprocessing 1.0"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED)
def test_what_nobody_pays_for_is_refused(changes: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        outlined(DIGITS, **{**PRIVATE, **changes})


def test_other_noises_and_audits_that_do_not_look_are_refused() -> None:
    with expect_refusal(key="data.pca_from", value="private"):
        outlined("quickstart", **GOSSIP, privacy__noise__family={"kind": "laplace"})
    with expect_refusal(key="data.pca_from", value="private"):
        outlined("quickstart", **GOSSIP, privacy__noise__family={"kind": "pairwise"})
    with expect_refusal(key="privacy.preprocessing", value="0.5", names="--canary", remedy=True):
        attack_of(outlined("quickstart", **GOSSIP), "all", None)


ALL: dict[str, Any] = {
    **GOSSIP,
    "data__standardise": {"kind": "quantiles"},
    "data__class_weights": "private",
    "privacy__noise__source": "seeded",
}
FILES = ("class-weights.safetensors", "standardise.safetensors", "components.safetensors")


@pytest.mark.parametrize("unit", ["record", {"column": "person"}, "node"])
def test_all_steps_together_for_every_unit(tmp_path: Path, unit: Any) -> None:
    persons = {"data__persons": 300} if isinstance(unit, dict) else {}
    out = run(tmp_path, "quickstart", **{**ALL, "rounds": 3}, privacy__unit=unit, **persons)
    for _, events in read_all(out.directory).values():
        assert [event.draw for event in events] == [-3, -2, -1, 0, 1, 2]
        assert proven(events[:3], 1e-5, "add-remove").epsilon == pytest.approx(2.0, rel=1e-6)
    proofs = recompute(out.directory)
    verify_run(out.directory)
    assert 3.8 < out.result["epsilon_proven"] <= 4.0
    assert out.result["epsilon_proven"] == proofs[0].proven.epsilon
    said = json.loads((out.directory / "certificate.json").read_text())["preprocessing"]
    assert [one["name"] for one in said["released"]] == ["class-weights", "standardise", "components"]
    assert said["epsilon"] == pytest.approx(2.0, rel=1e-6)
    raw = outlined("quickstart", **ALL).dataset
    assert raw is not None
    models = gossamer.load(out.directory).models
    right = (models.predict(raw.x_test, node=0) == raw.y_test).mean()
    assert right == pytest.approx(out.result["accuracy_by_node"][0], abs=1e-6)


def test_nodes_with_budgets_of_their_own_add_noise_of_their_own(tmp_path: Path) -> None:
    asked = [1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    out = run(tmp_path, "quickstart", **{**ALL, "privacy__epsilon": asked, "rounds": 3})
    found = read_all(out.directory)
    for node, epsilon in enumerate(asked):
        alone = proven(found[node][1][:3], 1e-5, "add-remove").epsilon
        assert alone == pytest.approx(epsilon / 2, rel=1e-6)
        assert out.result["epsilon_by_node"][node]["proven"] <= epsilon
    verify_run(out.directory)


def test_seeded_runs_release_the_same_and_go_on_with_it(tmp_path: Path) -> None:
    one, two = (run(tmp_path, "quickstart", **ALL) for _ in range(2))
    for file in FILES:
        assert (one.directory / file).read_bytes() == (two.directory / file).read_bytes()
    assert torch.equal(one.points, two.points)
    stopped = tmp_path / "stopped"

    def stop(t: int) -> None:
        if t == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(assemble(Plan.of(configured("quickstart", **ALL))), out=stopped, on_round=stop)
    (stopped / FILES[1]).unlink()  # seeded: the same noise again is the same release
    again = execute(assemble(Plan.of(configured("quickstart", **ALL))), resume=stopped)
    assert torch.equal(again.points, one.points)
    for _, events in read_all(stopped).values():
        assert [event.draw for event in events][:3] == [-3, -2, -1]
        assert len(events) == 9


@pytest.mark.parametrize("at", range(3))
def test_killed_between_two_steps_what_was_released_is_kept_and_the_rest_is_not_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    asked = {**ALL, "privacy__noise__source": "system"}
    import gossamer.training.preprocess as module

    def dying(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt if path.name == FILES[at] else AssertionError(path)

    real = module.write_atomically
    monkeypatch.setattr(
        module,
        "write_atomically",
        lambda path, c: real(path, c) if path.name in FILES[:at] else dying(path, c),
    )
    with pytest.raises(KeyboardInterrupt):
        execute(assemble(Plan.of(configured("quickstart", **asked))), out=tmp_path / "run")
    monkeypatch.undo()
    assert [(tmp_path / "run" / file).exists() for file in FILES] == [i < at for i in range(3)]
    _, events = read_all(tmp_path / "run")[0]
    assert [event.draw for event in events] == [-3, -2, -1][: at + 1]  # spent, though nobody has it
    with expect_refusal("draw", names=[at - 3, "node 0"]):
        execute(assemble(Plan.of(configured("quickstart", **asked))), resume=tmp_path / "run")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    stopped = stopped_run(tmp_path / "run")
    (stopped / FILE).write_bytes(b"{}")
    with expect_refusal(key="components.safetensors", names="read"):
        execute(assemble(Plan.of(configured("quickstart", **GOSSIP))), resume=stopped)


def test_a_run_that_fails_while_it_begins_keeps_in_its_account_what_it_had_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "\n".join(f"{i % 7},{i % 5},{i % 2}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}\n", encoding="utf-8")
    asked = configured(
        "quickstart",
        nodes=2,
        rounds=2,
        data={
            "kind": "csv", "path": str(tmp_path / "t.csv"), "label": "y", "classes": 2, "records": 20,
            "standardise": {"kind": "moments", "within": [0.0, 10.0]},
        },
        privacy__preprocessing=0.5,
    )  # fmt: skip
    import gossamer.training.preprocess as module

    def full(path: Path, content: bytes) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(module, "write_atomically", full)
    with expect_refusal(key="run", names="space"):
        execute(assemble(Plan.of(asked)), out=tmp_path / "run")
    (account,) = default_folder().glob("*.jsonl")
    said = [json.loads(line) for line in account.read_text().splitlines()]
    assert "one-sided" in json.dumps(said[-1])  # the release
    assert '"gaussian"' not in json.dumps(said[-1])  # and no draw


def test_an_edited_ledger_does_not_verify(tmp_path: Path) -> None:
    out = run(tmp_path, "quickstart", **{**ALL, "rounds": 3})
    ledger = out.directory / "ledger.jsonl"
    lines = ledger.read_text().splitlines()
    assert '"one-sided"' in lines[1]
    lines[1] = lines[1].replace('"sigma":', '"sigma":1')
    ledger.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError):
        verify_run(out.directory)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda said: said.update(epsilon=0.5), "plan.json preprocessing.epsilon"),
        (lambda said: said["released"][0].update(noise_multiplier=[99.0] * 8), "ledger.jsonl released 1"),
        (lambda said: said.update(released=None), "run-0 not"),
    ],
)
def test_a_certificate_that_says_something_else_is_refused(tmp_path: Path, change: Any, says: str) -> None:
    out = run(tmp_path, "quickstart", **{**ALL, "rounds": 2}).directory
    edit(out / "plan.json", lambda plan: change(plan["preprocessing"]))
    with expect_refusal(names=says), malformed_as_user_error(out):
        certificate_of(out)


def test_an_exported_model_standardises_by_itself(tmp_path: Path) -> None:
    from gossamer.results.export import Prepared
    from gossamer.training.predict import export

    changes = {"data__standardise": {"kind": "quantiles"}, "data__pca": None, "data__pca_from": "train"}
    out = run(tmp_path, "quickstart", **{**GOSSIP, **changes, "rounds": 2, "data__scale": "none"})
    found = export(out.directory, tmp_path / "exported")
    assert any("64 columns by a middle and spread" in step for step in found["card"]["inputs"]["steps"])
    raw = outlined("quickstart").dataset or outlined("quickstart", **{**GOSSIP, **changes}).dataset
    assert raw is not None
    whole = Prepared(out.models.description.inputs, out.models.module()).eval()
    with torch.no_grad():
        decided = whole(torch.from_numpy(raw.x_test)).argmax(1).numpy()
    assert (decided == out.models.predict(raw.x_test)).mean() > 0.99


@pytest.mark.slow
def test_processes_release_what_the_simulator_does(tmp_path: Path) -> None:
    alone = run(tmp_path, "quickstart", **{**ALL, "rounds": 2})
    spread = gossamer.load(_in_processes(tmp_path))
    for file in FILES:
        one, two = (load_file(directory / file) for directory in (alone.directory, spread.directory))
        for key in one:
            assert torch.allclose(one[key], two[key], rtol=1e-4, atol=1e-6)
    assert spread.result["epsilon_proven"] == alone.result["epsilon_proven"]
    assert spread.result["accuracy_mean"] == pytest.approx(alone.result["accuracy_mean"], abs=0.05)


def _in_processes(tmp_path: Path) -> Path:
    import subprocess
    import sys

    sets = [
        "rounds=2", "data.pca=12", "data.pca_from=private", "privacy.preprocessing=0.5", "data.scale=unit-ball",
        'privacy.sampling={kind="full"}', "privacy.epsilon=4.0", "privacy.delta=1e-5", "checkpoints.every=2",
        'data.standardise={kind="quantiles"}', "data.class_weights=private", "privacy.noise.source=seeded",
        "runtime.kind=processes", "runtime.ranks=2",
    ]  # fmt: skip
    command = [sys.executable, "-m", "gossamer", "run", "quickstart", "--out", str(tmp_path / "ranks")]
    subprocess.run([*command, *[word for one in sets for word in ("--set", one)]], check=True, timeout=120)
    return tmp_path / "ranks"
