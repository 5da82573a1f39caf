"""Without-replacement learning as a user meets it: plan, run, ledger, baselines, refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.configurations import configured
from tests.support.refusals import expect_refusal
from tests.support.without_replacement import DIGITS, plan

import gossamer
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.config.layers import resolve
from gossamer.results.headline import judged
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute


def run(tmp_path: Path, **changes: Any) -> Any:
    config = configured(DIGITS, **changes)
    return execute(assemble(Plan.of(config)), out=tmp_path / f"run-{len(list(tmp_path.iterdir()))}")


@pytest.mark.parametrize("controller", ["global", "pass-end", "probability", "deep-q", "loss-threshold"])
def test_sound_runs_prove_what_is_asked_whatever_decides(tmp_path: Path, controller: str) -> None:
    out = run(tmp_path, algorithm__controller=controller, rounds=72, data__train_rows=400, nodes=2)
    assert 0 < out.result["epsilon_proven"] <= 1.0 + 1e-9
    assert out.result["not_proven_because"] is None
    assert out.certificate["draws"][0] >= 1


def test_local_nodes_release_nothing(tmp_path: Path) -> None:
    out = run(tmp_path, algorithm__controller="local", privacy__noise__source="seeded")
    assert out.result["epsilon_proven"] == 0.0
    assert out.result["bytes_sent"] == 0
    assert out.result["not_private"]["accuracy_mean"] > 0.5  # each node learns by itself
    assert any("local models" in note for note in out.certificate["notes"])


def test_no_communication_is_every_node_for_itself(tmp_path: Path) -> None:
    alone, local = (
        run(tmp_path, privacy__noise__source="seeded", **changes)
        for changes in ({"baseline": "no-communication"}, {"algorithm__controller": "local"})
    )
    own = [out.result["not_private"]["accuracy_by_node"] for out in (alone, local)]
    assert own[0] == own[1]


def test_checkpoints_hold_no_local_model(tmp_path: Path) -> None:
    out = run(tmp_path, algorithm__controller="probability")
    (path,) = (out.directory / "checkpoints").iterdir()
    tensors = load_file(path)
    assert set(tensors) == {"public", "holder", "writes", "gradient.draws", "gradient.released_loss"}
    assert tensors["public"].shape == (1, 640)


def test_seeded_runs_repeat_and_system_runs_do_not(tmp_path: Path) -> None:
    seeded = [run(tmp_path, mode="paper", privacy__noise__source="seeded", rounds=20).points for _ in range(2)]
    assert torch.equal(*seeded)
    fresh = [run(tmp_path, mode="paper", rounds=20).points for _ in range(2)]
    assert not torch.equal(*fresh)


def test_deep_q_writes_between_never_and_always(tmp_path: Path) -> None:
    out = run(tmp_path, mode="paper", rounds=36)
    tensors = load_file(next((out.directory / "checkpoints").iterdir()))
    assert 36 < int(tensors["writes"]) <= 4 * 36


def test_the_paper_s_order_of_methods(tmp_path: Path) -> None:
    """Noiseless above a write now and then above a write every turn, on shared digits with much noise."""
    noise = {"privacy__noise__multiplier": 0.5, "privacy__epsilon": None, "privacy__noise__source": "seeded"}
    base = {"data__partition": {"kind": "sampled", "size": 360}, **noise, "mode": "paper"}
    noiseless = run(tmp_path, **base, baseline="non-private", algorithm__controller="global").result
    rarely = run(tmp_path, **base, algorithm__controller="pass-end").result
    always = run(tmp_path, **base, algorithm__controller="global").result
    accuracies = [judged(result)["accuracy_mean"] for result in (noiseless, rarely, always)]
    assert accuracies[0] > accuracies[1] > accuracies[2] + 0.1


@pytest.mark.slow
def test_with_replacement_is_the_papers_baseline(tmp_path: Path) -> None:
    changes = {
        "algorithm__kind": "with-replacement",
        "privacy__sampling": {"kind": "fixed-size", "lot": 10},
        "rounds": 180,
        "algorithm__lr": {"start": 0.5, "power": 0.5},
        "data__records": None,
    }
    paper = plan(mode="paper", **changes).figures()
    assert paper["epsilon_claimed"] == pytest.approx(1.0)
    assert any("5.01" in flag or "5 visits" in flag for flag in paper["claim_flags"])
    # Adding up ε/5 per visit leaves the amplification by sampling unused: less is spent than is claimed.
    assert 0 < paper["epsilon_proven"] < 0.5
    sound = plan(**{**changes, "privacy__sampling": {"kind": "poisson", "lot": 10}}, privacy__adjacency="add-remove")
    assert 0.9 < sound.figures()["epsilon_proven"] <= 1.0
    out = run(tmp_path, mode="paper", **{**changes, "rounds": 20})
    assert out.certificate["draws"] == [20] * 4
    stopped = run(
        tmp_path,
        mode="paper",
        **changes,
        privacy__noise__multiplier=plan(mode="paper", **changes).nodes[0].factor / 2,
    )
    assert 0 < stopped.certificate["draws"][0] < 180  # a node whose budget is used up stays where it is


@pytest.mark.parametrize("lot", [10, 40])
def test_noiseless_is_scikit_learns_sgd(tmp_path: Path, lot: int) -> None:
    """One node that always writes is plain SGD: within 1.5 points of SGDClassifier at the same number of steps."""
    from sklearn.linear_model import SGDClassifier

    from gossamer.data.load import load

    passes = 10
    rounds = passes * -(-1437 // lot)
    out = run(
        tmp_path, nodes=1, rounds=rounds, baseline="non-private", algorithm__controller="global",
        algorithm__lr=0.5, privacy__sampling={"kind": "one-pass", "lot": lot},
    )  # fmt: skip
    data = load("digits", scale="unit-sphere")
    scores = []
    for seed in range(3):
        theirs = SGDClassifier(
            loss="log_loss", alpha=1e-9, learning_rate="constant", eta0=0.5 / lot, max_iter=passes, tol=None,
            fit_intercept=False, random_state=seed,
        )  # fmt: skip
        theirs.fit(data.x_train.reshape(1437, -1), data.y_train)
        scores.append(theirs.score(data.x_test.reshape(len(data.x_test), -1), data.y_test))
    assert out.result["accuracy_mean"] == pytest.approx(np.mean(scores), abs=0.015)


@pytest.mark.data
@pytest.mark.slow
def test_noiseless_is_scikit_learns_sgd_on_mnist(tmp_path: Path) -> None:
    from sklearn.linear_model import SGDClassifier

    from gossamer.config import recipes

    changes = {"mode": "paper", "nodes": 1, "baseline": "non-private", "algorithm.controller": "global"}
    config = resolve(recipes.read("without-replacement/mnist"), changes)
    out = execute(assemble(Plan.of(config)), out=tmp_path / "r")
    data = config.data.load()
    theirs = SGDClassifier(
        loss="log_loss", alpha=1e-12, learning_rate="constant", eta0=0.1 / 50, max_iter=1, tol=None,
        fit_intercept=False, random_state=0,
    )  # fmt: skip
    theirs.fit(data.x_train, data.y_train)
    found = judged(out.result)["accuracy_mean"]  # of models that stay where they are, as in the paper: not private
    assert found == pytest.approx(theirs.score(data.x_test, data.y_test), abs=0.015)


REFUSED = [
    ({"privacy.sampling.lot": 400}, "privacy.sampling.lot 400"),
    ({"privacy.sampling.lot": 0}, "privacy.sampling.lot 0"),
    ({"algorithm.lr": 2.1}, "algorithm.lr 2.1 4"),
    ({"algorithm.controller": "oracle"}, "algorithm.controller oracle"),
    ({"algorithm.probability": 1.5}, "algorithm.probability 1.5"),
    ({"algorithm.discount": 1.0}, "algorithm.discount 1.0"),
    ({"algorithm.radius": -1.0}, "algorithm.radius -1.0"),
    ({"algorithm.seed": 3}, "algorithm.seed"),
    ({"algorithm.loss_share": 0.0}, "algorithm.loss_share 0.0"),
    ({"data.partition": {"kind": "sampled", "size": [90, 91, 90, 90]}}, "data.partition.kind sampled"),
    ({"data.pca": 10}, "data.pca_from"),
    ({"data.pca": 10, "data.pca_from": "mnist"}, "data.pca_from mnist"),
    ({"data.pca": 100}, "data.pca_from"),
    ({"data.pca_from": "mnist"}, "data.pca_from mnist"),
    ({"data.scale": "cube"}, "data.scale cube"),
    ({"data.bias": "inside"}, "data.bias inside"),
    ({"mode": "paper", "privacy.epsilon": 3.0}, "epsilon 3.0"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=[str(c) for c, _ in REFUSED])
def test_mistakes_are_one_sentence(changes: dict[str, Any], named: str) -> None:
    with expect_refusal(names=named) as caught:
        Plan.of(resolve(DIGITS, changes))
    assert "\n" not in str(caught.value)


def test_more_declared_than_held_is_fine(tmp_path: Path) -> None:
    out = run(tmp_path, data__records=400, algorithm__controller="pass-end", rounds=40)
    assert out.certificate["public_constants"][0]["records"] == 400


def test_the_command_line_runs_plans_and_recomputes(command: Any) -> None:
    import tomli_w

    Path("digits.toml").write_text(tomli_w.dumps(DIGITS))

    def call(*words: str) -> dict[str, Any]:
        code, out, _ = command(*words, "--json")
        assert code == 0
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    planned = call("plan", "digits.toml")
    ran = call("run", "digits.toml", "--out", "r")
    again = call("plan", "--ledger", "r")
    assert planned["epsilon_proven"] == pytest.approx(ran["epsilon_proven"])
    assert again["epsilon_proven"] == pytest.approx(ran["epsilon_proven"])
    assert again["matches_certificate"] is True
    Path("r/certificate.json").unlink()  # as if it had been stopped
    code, _, errors = command("run", "--resume", "r")
    assert code == 2
    assert "one-pass" in errors
    assert gossamer.plan(DIGITS).privacy.nodes[0].proven.epsilon <= 1.0


def test_other_methods_can_use_disjoint_lots_too(tmp_path: Path) -> None:
    """Each pass is one release of a record: three passes of 18 lots cost what three full batches cost."""
    changes = {
        "rounds": 54,
        "privacy.sampling": {"kind": "one-pass", "lot": 10},
        "algorithm.kind": "const-d2p",
    }
    parts = assemble(gossamer.plan("quickstart", changes))
    factor = parts.plan.privacy.nodes[0].factor
    assert parts.plan.privacy.nodes[0].proven.epsilon == pytest.approx(8.0, rel=1e-6)
    assert gdp_epsilon(math.sqrt(3) / factor, 1e-4) == pytest.approx(8.0, rel=1e-6)
    out = execute(parts, out=tmp_path / "r")
    assert out.result["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize("baseline", ["non-private", "central"])
def test_baselines_run(tmp_path: Path, baseline: str) -> None:
    out = run(tmp_path, baseline=baseline, algorithm__controller="pass-end", privacy__epsilon=1.0)
    assert out.result["baseline"] == baseline
    assert (out.result["epsilon_proven"] is None) == (baseline == "non-private")
