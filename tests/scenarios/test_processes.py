"""Whole runs over several processes are the simulator's, stop as it does, and go on as it does."""

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
from tests.support.methods import METHODS
from tests.support.pool import Pool, uneven

import gossamer
from gossamer.config import recipes
from gossamer.config.layers import resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.results import checkpoint
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute


@pytest.fixture(scope="module")
def four_ranks() -> Iterator[Any]:
    pool = Pool(4)
    yield pool
    pool.close()


def settings(**changes: Any) -> dict[str, Any]:
    return resolve(recipes.read("quickstart"), changes).model_dump(exclude_none=True)


def agrees(method: str, one: torch.Tensor, other: torch.Tensor) -> None:
    """To the last bit where whole numbers are released; a resolvent without noise is a float."""
    if "resolvent" in method:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    else:
        assert torch.equal(one, other)


ADAPTED = {
    "model.kind": "mlp",
    "model.hidden": [8],
    "lora.rank": 2,
    "lora.targets": ["1"],
    "lora.train": ["3"],
}
KINDS = METHODS | {"lora": METHODS["push-sum"] | ADAPTED}


def agree_on_a_run(pool: Any, method: str, folder: Path) -> None:
    """Data, sampling, clip, noise, evaluation, ledgers: all of it, with seeded noise, to the last bit."""
    sizes = uneven(pool.ranks)
    short = {"rounds": 6, "evaluation.every": 3, "privacy.noise.source": "seeded", "privacy.claim": "none"}
    asked = settings(**KINDS[method], **short, nodes=sum(sizes))
    alone = execute(assemble(Plan.of(RunConfig.model_validate(asked))), out=folder / "alone").result
    answers = pool.call("gossamer_run", sizes=sizes, settings=asked, out=folder / "ranks")
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    one = load_file(folder / "alone" / "checkpoints" / "round-000006.safetensors")
    two = checkpoint.load(folder / "ranks" / "checkpoints", 6, range(sum(sizes))).tensors
    assert set(one) - {"gradient.vector.slopes"} == set(two)
    for key, value in two.items():
        agrees(method, value, one[key])
    models = [gossamer.load(folder / way).models for way in ("alone", "ranks")]
    for whose in range(sum(sizes)):
        for name, value in models[0].weights(whose).items():
            agrees(method, models[1].weights(whose)[name], value)
    for name, value in models[0].weights("average").items():  # added up rank by rank
        torch.testing.assert_close(models[1].weights("average")[name], value, rtol=1e-5, atol=1e-6)
    assert histories(folder / "alone") == histories(folder / "ranks")
    together = answers[0]
    assert together["bytes_sent"] == alone["bytes_sent"]
    assert together["epsilon_proven"] == pytest.approx(alone["epsilon_proven"]) if alone["epsilon_proven"] else True
    assert together["consensus_distance"] == pytest.approx(alone["consensus_distance"], rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(together["accuracy_by_node"], alone["accuracy_by_node"], atol=0.01)
    assert together["accuracy_average_model"] == pytest.approx(alone["accuracy_average_model"], abs=0.01)


LONG = {  # on four ranks alone
    "push-sum, quantile clip", "noise that cancels, few secrets", "km, a resolvent that starts where its last ended",
    "exact means by a filter", "dinno",
}  # fmt: skip


@pytest.mark.parametrize("method", [method for method in KINDS if method not in LONG])
def test_a_whole_run_on_two_ranks_is_the_simulators(two_ranks: Any, method: str, tmp_path: Path) -> None:
    agree_on_a_run(two_ranks, method, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_whole_run_on_four_ranks_is_the_simulators(four_ranks: Any, method: str, tmp_path: Path) -> None:
    agree_on_a_run(four_ranks, method, tmp_path)


@pytest.mark.slow
def test_a_whole_run_on_eight_ranks_is_the_simulators(tmp_path: Path) -> None:
    pool = Pool(8)
    try:
        for number, method in enumerate(("push-sum", "dsgt", "noise that cancels, few secrets", "km")):
            agree_on_a_run(pool, method, tmp_path / str(number))
    finally:
        pool.close()


SEEDED = {"privacy.noise.source": "seeded", "privacy.claim": "none"}


def test_stopped_ranks_go_on_bit_for_bit_and_so_does_the_simulator(two_ranks: Any, tmp_path: Path) -> None:
    sizes, rounds = [2, 5], {"rounds": 12, "nodes": 7, "checkpoints.every": 4, "evaluation.every": 6}
    asked = settings(**METHODS["push-sum"], **SEEDED, **rounds)
    whole, cut, moved = tmp_path / "whole", tmp_path / "cut", tmp_path / "moved"
    two_ranks.call("gossamer_run", sizes=sizes, settings=asked, out=whole)
    for path in (cut, moved):
        answers = two_ranks.call("gossamer_run", sizes=sizes, settings=asked, out=path, stop_at=7)
        assert all("stopped by the test" in str(answer) for answer in answers)
    answers = two_ranks.call("gossamer_run", sizes=sizes, out=cut)
    assert answers[0]["rounds"] == 12
    one = checkpoint.load(whole / "checkpoints", 12, range(7)).tensors
    two_ = checkpoint.load(cut / "checkpoints", 12, range(7)).tensors
    assert all(torch.equal(one[key], two_[key]) for key in one)
    # One process can take over the same directory; two with other blocks cannot: a ledger has one writer.
    answers = two_ranks.call("gossamer_run", sizes=[4, 3], out=moved, stop_at=10)
    assert all("to host only some of them" in str(answer) for answer in answers)
    outcome = execute(assemble(Plan.of(stored(moved / "config.toml"))), resume=moved)
    torch.testing.assert_close(outcome.points, one["x"] / one["w"], rtol=1e-4, atol=1e-5)
    assert outcome.result["bytes_sent"] == answers_bytes(whole)
    assert histories(whole) == histories(cut) == histories(moved)


def test_ranks_with_exact_means_hold_one_model_to_the_last_bit_also_after_a_stop(
    two_ranks: Any, tmp_path: Path
) -> None:
    sizes = uneven(2)
    nodes = range(sum(sizes))
    rounds = {"rounds": 9, "nodes": sum(sizes), "evaluation.every": 9, "checkpoints.every": 3}
    asked = settings(**METHODS["exact means"], **SEEDED, **rounds)
    alone = execute(assemble(Plan.of(RunConfig.model_validate(asked))), out=tmp_path / "alone")
    two_ranks.call("gossamer_run", sizes=sizes, settings=asked, out=tmp_path / "ranks")
    two_ranks.call("gossamer_run", sizes=sizes, settings=asked, out=tmp_path / "cut", stop_at=5)
    answers = two_ranks.call("gossamer_run", sizes=sizes, out=tmp_path / "cut")
    assert answers[0]["bytes_sent"] == alone.result["bytes_sent"]
    one, two, three = (
        checkpoint.load(tmp_path / way / "checkpoints", 9, nodes).tensors for way in ("alone", "ranks", "cut")
    )
    assert set(one) == set(two) == set(three)
    for key in one:
        assert torch.equal(two[key], three[key])
        # A node's gradient itself comes out of the kernels with other last bits where fewer nodes are computed at once.
        torch.testing.assert_close(one[key], two[key], rtol=1e-4, atol=1e-5)
        if one[key].ndim > 1:
            assert all(torch.equal(row, two[key][0]) for row in two[key])
    assert histories(tmp_path / "alone") == histories(tmp_path / "cut")


def answers_bytes(run: Path) -> int:
    return int(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["bytes_sent"])


def test_secret_noise_differs_between_ranks_and_starts_and_is_never_drawn_twice(two_ranks: Any, tmp_path: Path) -> None:
    from gossamer.accounting import ledger

    asked = settings(rounds=8, nodes=4, **{"checkpoints.every": 4, "privacy.claim": "none"})
    run = tmp_path / "r"
    two_ranks.call("gossamer_run", sizes=[1, 3], settings=asked, out=run, stop_at=6)
    result = two_ranks.call("gossamer_run", sizes=[1, 3], out=run)[0]
    assert result["epsilon_proven"] <= 8.0
    for _, events in ledger.read_all(run).values():
        assert [event.draw for event in events] == list(range(8))
    assert "2 draws" in " ".join(json.loads((run / "certificate.json").read_text())["notes"])


def test_a_mistake_on_all_ranks_is_one_sentence(two_ranks: Any, tmp_path: Path) -> None:
    wrong = settings(rounds=4, nodes=4)
    wrong["topology"] = {"kind": "random-regular", "degree": 4}
    for answer in two_ranks.call("gossamer_run", sizes=[2, 2], settings=wrong, out=tmp_path / "r"):
        assert "topology.degree = 4 must be" in str(answer)
    assert not (tmp_path / "r").exists()
