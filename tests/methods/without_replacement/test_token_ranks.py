"""The shared model over several ranks: the simulator's numbers, whoever decides, and what must not travel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.ledgers import histories
from tests.support.pool import Pool
from tests.support.refusals import expect_refusal
from tests.support.tokens import token_rounds

from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.results import checkpoint
from gossamer.results.headline import judged
from gossamer.runtime.group import Alone, split
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

CONTROLLERS = ["global", "local", "pass-end", "probability", "deep-q", "loss-threshold"]
TOKEN: dict[str, Any] = {
    "nodes": 7,
    "rounds": 24,
    "data": {"kind": "digits", "scale": "unit-sphere"},
    "model": {"kind": "one-vs-all"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "without-replacement", "lr": 0.4},
    "privacy": {
        "epsilon": 0.9, "delta": 1e-6, "sampling": {"kind": "one-pass", "lot": 20}, "noise": {"source": "seeded"}
    },
    "evaluation": {"every": 7},
    "runtime": {"kind": "processes"},
}  # fmt: skip


@pytest.fixture(scope="module")
def four_ranks() -> Iterator[Pool]:
    pool = Pool(4)
    yield pool
    pool.close()


def settings(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(exclude_none=True)


def alone(config: RunConfig, **where: Path) -> Any:
    return execute(assemble(Plan.of(config)), **where)


def on_ranks(pool: Pool, sizes: list[int], **arguments: Any) -> list[Any]:
    answers = pool.call("gossamer_run", sizes=sizes, **arguments)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def agree(pool: Pool, sizes: list[int], folder: Path, **changes: Any) -> None:
    """Models, controllers, results, prices."""
    config = resolve(TOKEN, {key.replace("__", "."): value for key, value in changes.items()})
    outcome = alone(config, out=folder / "alone")
    together = on_ranks(pool, sizes, settings=settings(config), out=folder / "ranks")[0]
    one = load_file(folder / "alone" / "checkpoints" / "round-000024.safetensors")
    two = checkpoint.load(folder / "ranks" / "checkpoints", 24, range(7)).tensors
    assert set(one) == set(two)
    for key, value in two.items():
        torch.testing.assert_close(value, one[key], rtol=1e-4, atol=1e-5)
    for path in (folder / "ranks" / "checkpoints").iterdir():  # everyone has the shared model
        torch.testing.assert_close(load_file(path)["public"], one["public"], rtol=1e-4, atol=1e-5)
    assert histories(folder / "alone") == histories(folder / "ranks")
    for key in ("epsilon_proven", "epsilon_claimed", "epsilon_by_node", "not_proven_because", "bytes_sent"):
        assert together[key] == outcome.result[key]
    ours, theirs = judged(outcome.result), judged(together)
    np.testing.assert_allclose(theirs["accuracy_by_node"], ours["accuracy_by_node"], atol=0.01)
    assert theirs["loss_mean"] == pytest.approx(ours["loss_mean"], rel=1e-4)
    assert theirs["consensus_distance"] == pytest.approx(ours["consensus_distance"], abs=1e-4)


@pytest.mark.parametrize("mode", ["sound", "paper"])
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_two_ranks_do_what_the_simulator_does(two_ranks: Pool, controller: str, mode: str, tmp_path: Path) -> None:
    agree(two_ranks, [2, 5], tmp_path, mode=mode, algorithm__controller=controller)


@pytest.mark.slow
def test_the_scores_of_local_models_are_the_simulators_too(two_ranks: Pool, tmp_path: Path) -> None:
    agree(two_ranks, [5, 2], tmp_path, algorithm__controller="probability", algorithm__scored="local")


@pytest.mark.slow
def test_learning_with_replacement_on_two_ranks_is_the_simulators(two_ranks: Pool, tmp_path: Path) -> None:
    changes = {"algorithm__kind": "with-replacement", "privacy__sampling": {"kind": "poisson", "lot": 20}}
    agree(two_ranks, [3, 4], tmp_path, **changes, privacy__adjacency="add-remove")


@pytest.mark.slow
@pytest.mark.parametrize("controller", ["deep-q", "global", "pass-end"])
def test_four_ranks_do_what_the_simulator_does(four_ranks: Pool, controller: str, tmp_path: Path) -> None:
    agree(four_ranks, [1, 3, 1, 2], tmp_path, algorithm__controller=controller)


@pytest.mark.slow
def test_secret_noise_on_two_ranks_keeps_its_promise_and_its_local_models(two_ranks: Pool, tmp_path: Path) -> None:
    config = resolve(TOKEN, {"privacy.noise.source": "system", "algorithm.controller": "deep-q"})
    result = on_ranks(two_ranks, [3, 4], settings=settings(config), out=tmp_path / "r")[0]
    assert 0 < result["epsilon_proven"] <= 0.9 + 1e-9
    for path in (tmp_path / "r" / "checkpoints").iterdir():
        assert set(load_file(path)) == {
            "public",
            "holder",
            "writes",
            "gradient.draws",
            "gradient.released_loss",
        }


def test_only_what_was_released_leaves_a_rank(two_ranks: Pool, tmp_path: Path) -> None:
    """With secret noise: each model that is sent was written by a node of the sender, each judged by some node."""
    config = resolve(TOKEN, {"privacy.noise.source": "system", "algorithm.controller": "pass-end"})
    answers = two_ranks.call("models_that_left", sizes=[3, 4], settings=settings(config), out=tmp_path / "r")
    everyones = torch.stack([model for _, _, released in answers for model in released])
    for sent, summed, released in answers:
        own = {model.numpy().tobytes() for model in released}
        assert len(sent) > 3
        assert all(model.numpy().tobytes() in own for model in sent)
        assert len(summed) == 5  # evaluations, and the average that a run keeps
        for model in summed:
            assert bool(((everyones - model).abs().amax(1) < 1e-5).any()) or not model.any()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"algorithm.controller": "local"}, "controller"),
        ({"algorithm.scored": "local"}, "scored"),
        ({"baseline": "no-communication"}, "controller"),
    ],
)
def test_figures_of_local_models_do_not_travel(changes: dict[str, Any], key: str) -> None:
    with expect_refusal(f"algorithm.{key}", "local", "processes"):
        Plan.of(resolve(TOKEN, {**changes, "privacy.noise.source": "system"}))
    for allowed in ({"privacy.noise.source": "seeded"}, {"runtime.kind": "simulator", "mode": "paper"}):
        Plan.of(resolve(TOKEN, {"privacy.noise.source": "system", **changes, **allowed}))


def passes_in_order(pool: Pool, sizes: list[int], share: float) -> None:
    rounds, nodes = 12, sum(sizes)
    wants = torch.from_numpy(np.random.default_rng(0).random((rounds, nodes, 2)) < share)
    expected = token_rounds(Alone(nodes), rounds, wants)
    found = pool.call("token_rounds", sizes=sizes, rounds=rounds, wants=wants)
    for public, holder, writes, losses, _, _ in found:
        assert torch.equal(public, expected[0])
        assert (holder, writes) == expected[1:3]
        assert torch.equal(losses, expected[3])
    assert sum(part[4] for part in found) == expected[4]
    # Each rank saw what its nodes see in the simulator, in the same order.
    for part, block in zip(found, split(nodes, len(sizes), sizes), strict=True):
        assert part[5] == [entry for entry in expected[5] if entry[0] == -1 or entry[0] in block]


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_token_passes_the_ranks_in_the_order_of_the_turns(two_ranks: Pool, share: float) -> None:
    for sizes in ([5, 1], [2, 4]):
        passes_in_order(two_ranks, sizes, share)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_token_passes_four_ranks_too(four_ranks: Pool, share: float) -> None:
    passes_in_order(four_ranks, [1, 3, 1, 2], share)


@pytest.mark.slow
def test_the_command_line_spreads_the_shared_model_over_processes(command: Any, tmp_path: Path) -> None:
    words = [
        "algorithm.kind=without-replacement", "model.kind=one-vs-all", "topology.kind=complete", "algorithm.lr=0.1",
        "privacy.sampling={kind='one-pass',lot=30}", "privacy.adjacency=replace-one", "privacy.epsilon=0.8",
        "privacy.noise.source=seeded", "rounds=12",
    ]  # fmt: skip
    changes = [part for word in words for part in ("--set", word)]
    results = {}
    for name, own in {"one": [], "two": ["--runtime", "processes", "--set", "runtime.ranks=2"]}.items():
        code, out, err = command("run", "quickstart", *changes, *own, "--out", name, "--json")
        assert code == 0, err
        results[name] = json.loads(out.splitlines()[-1])
    for key in ("epsilon_proven", "epsilon_claimed", "epsilon_by_node", "bytes_sent", "rounds", "nodes"):
        assert results["one"][key] == results["two"][key]
    assert results["two"]["accuracy_mean"] == pytest.approx(results["one"]["accuracy_mean"], abs=0.01)
    one, two = (checkpoint.load(tmp_path / name / "checkpoints", 12, range(8)).tensors for name in results)
    torch.testing.assert_close(two["public"], one["public"], rtol=1e-4, atol=1e-5)
    code, out, err = command("plan", "--ledger", "two", "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["matches_certificate"] is True
