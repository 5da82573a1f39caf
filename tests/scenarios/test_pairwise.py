"""Noise that cancels, in whole runs: what is on file prices itself, processes keep secrets, accuracy is the centre's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.pool import Pool, uneven
from tests.support.refusals import expect_refusal

from gossamer.accounting import secrets as graphs
from gossamer.accounting.observers import colluders
from gossamer.accounting.recompute import recompute
from gossamer.accounting.secrets import Secrets
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

QUICK = {"rounds": 6, "evaluation.every": 6, "privacy.epsilon": 1.0, "algorithm.mixes": "exact"}
RING = [[i, (i + 1) % 8] for i in range(8)]


def config(**changes: Any) -> RunConfig:
    return resolve(recipes.read("quickstart"), {"privacy.noise.kind": "pairwise", **QUICK, **changes})


def run(folder: Path, **changes: Any) -> Any:
    return execute(assemble(Plan.of(config(**changes))), out=folder)


def test_the_short_key_is_the_long_one() -> None:
    long = resolve(recipes.read("quickstart"), {"privacy.noise.family": {"kind": "pairwise", "colluders": 3}, **QUICK})
    assert config(**{"privacy.noise.colluders": 3}) == long


@pytest.mark.parametrize("listed", [False, True])
def test_the_ledgers_alone_price_the_run_against_any_coalition(tmp_path, listed) -> None:
    changes = {"privacy.noise.secrets": RING} if listed else {}
    outcome = run(tmp_path / "r", **changes)
    assert outcome.certificate["observer"] == colluders(1).description
    graphs._known.clear()  # as in a process that never saw the configuration
    proofs = recompute(tmp_path / "r")
    assert max(p.proven.epsilon for p in proofs) == outcome.certificate["epsilon_proven"] <= 1.0
    assert {p.observer for p in proofs} == {colluders(1)}
    by_size = [max(p.proven.epsilon for p in recompute(tmp_path / "r", observer=colluders(q))) for q in (0, 1, 4, 7)]
    assert by_size == sorted(by_size)
    assert by_size[1] == outcome.certificate["epsilon_proven"]


def test_a_line_has_all_that_its_price_needs(tmp_path) -> None:
    run(tmp_path / "r", **{"privacy.noise.colluders": 2, "privacy.noise.ratio": 50.0})
    line = json.loads((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()[1])
    found = {key: line[key] for key in ("kind", "nodes", "colluders", "ratio", "secrets")}
    assert found == {
        "kind": "pairwise", "nodes": 8, "colluders": 2, "ratio": 50.0, "secrets": Secrets.complete(8).digest
    }  # fmt: skip


def test_nodes_of_different_lots_add_the_same_to_their_means_and_none_too_little() -> None:
    plan = Plan.of(
        config(**{"data.partition": {"kind": "sizes", "sizes": [60, 60, 90, 90, 120, 120, 200, 240]}})
    ).privacy
    in_means = [node.factor / (node.lot / node.weight) for node in plan.nodes]
    assert in_means == pytest.approx([in_means[0]] * 8)
    found = [node.proven.epsilon for node in plan.nodes]
    assert max(found) <= 1.0
    assert max(found) > 0.98
    assert found[0] == max(found)  # the smallest node needs most; the others get more noise than they need
    assert found[-1] < 0.6


def test_colluding_but_for_one_is_own_noise() -> None:
    own = Plan.of(resolve(recipes.read("quickstart"), {**QUICK, "privacy.noise.kind": "gaussian"})).privacy
    all_but_one = Plan.of(config(**{"privacy.noise.colluders": 7})).privacy
    need = max(node.factor / (node.lot / node.weight) for node in own.nodes)
    assert [n.factor / (n.lot / n.weight) for n in all_but_one.nodes] == pytest.approx([need] * 8, rel=1e-6)


def test_auto_goes_further_where_noise_cancels() -> None:
    read = recipes.read("central-accuracy/digits")
    own, masked = (resolve(read, {"privacy.noise.kind": kind}) for kind in ("gaussian", "pairwise"))
    gain = Secrets.complete(20).effective_noise(1, 100.0)
    assert masked.algorithm.lr * masked.rounds == pytest.approx(gain * own.algorithm.lr * own.rounds, rel=1e-3)


def test_baselines_have_their_own_noise() -> None:
    for baseline in ("central", "no-communication"):
        assert Plan.of(config(baseline=baseline)).privacy.noise.kind == "gaussian"
    assert Plan.of(config(baseline="non-private")).privacy.noise.kind == "none"


REFUSED = {
    "quantile": ({"privacy.clip": {"kind": "quantile"}}, "privacy.clip.kind quantile"),
    "allowances": (
        {"privacy.epsilon": [1.0, *[8.0] * 7], "privacy.noise.multiplier": 1.0},
        "privacy.epsilon pays",
    ),
    "apart": ({"privacy.noise.secrets": RING, "privacy.noise.colluders": 2}, "privacy.noise.family.secrets 2"),
    "all": ({"privacy.noise.colluders": 8}, "privacy.noise.family.colluders 8"),
    "local models": (
        {"algorithm.kind": "without-replacement", "algorithm.mixes": 1, "topology.kind": "ring"},
        "privacy.noise.family.kind pairwise",
    ),
    "paper": ({"mode": "paper"}, "privacy.noise.family.kind pairwise"),
    "a word": ({"privacy.noise.secrets": "some"}, "privacy.noise.family.secrets some"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_in_one_sentence(changes, words) -> None:
    with expect_refusal(names=words) as caught:
        Plan.of(config(**{"rounds": 60, **changes}))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def pool() -> Any:
    made = Pool(2)
    yield made
    made.close()


@pytest.mark.slow
def test_processes_with_secrets_of_their_own_reach_what_one_process_does(pool, tmp_path) -> None:
    """System noise: nothing to compare bit by bit, but a mean with masks left in it would have learned nothing."""
    sizes = uneven(2)
    asked = config(rounds=40, nodes=sum(sizes), **{"privacy.epsilon": 4.0, "evaluation.every": 40})
    answers = pool.call(
        "gossamer_run", sizes=sizes, settings=asked.model_dump(exclude_none=True), out=tmp_path / "ranks"
    )
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    assert answers[0]["accuracy_min"] == answers[0]["accuracy_max"] > 0.8
    for text in [p.read_bytes() for p in (tmp_path / "ranks").rglob("*") if p.is_file()]:
        assert b"X25519" not in text
    certificate = json.loads((tmp_path / "ranks" / "certificate.json").read_text())
    assert certificate["epsilon_proven"] == max(p.proven.epsilon for p in recompute(tmp_path / "ranks"))


@pytest.mark.slow
def test_quickstart_is_within_a_point_of_the_centre(tmp_path) -> None:
    """Five seeds of system noise; a mean of five has a standard error of about 0.7 points, so 3 are allowed here."""
    found = {}
    for baseline in ("none", "central"):
        accuracies = []
        for seed in range(5):
            changes = {"rounds": 300, "seed": seed, "baseline": baseline, "evaluation.every": 300}
            accuracies.append(run(tmp_path / f"{baseline}-{seed}", **changes).result["accuracy_mean"])
        found[baseline] = np.mean(accuracies)
    assert found["none"] > found["central"] - 0.03
    assert found["none"] > 0.85
