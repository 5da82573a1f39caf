"""Several processes give the simulator's numbers, whatever the algorithm, the graph and the blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support import quadratics
from tests.support.methods import METHODS
from tests.support.pool import Pool

from gossamer.config import recipes
from gossamer.config.layers import resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.methods import rules
from gossamer.results import checkpoint
from gossamer.run.assemble import assemble, outline
from gossamer.run.train import execute
from gossamer.runtime.blocks import split
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.topology.kinds import build as build_topology


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    pool = Pool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module", params=[4, 8])
def more(request: pytest.FixtureRequest) -> Iterator[Any]:
    pool = Pool(request.param)
    yield pool
    pool.close()


def uneven(pool: Any) -> list[int]:
    return {2: [2, 5], 4: [1, 4, 2, 3], 8: [1, 3, 1, 2, 1, 1, 2, 1]}[pool.ranks]


def settings(**changes: Any) -> dict[str, Any]:
    return resolve(recipes.read("quickstart"), changes).model_dump(exclude_none=True)


def stacked(parts: list[Any]) -> dict[str, torch.Tensor]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
    return {key: torch.cat([part[0][key] for part in parts]) for key in parts[0][0]}


def agree_on_a_case(pool: Any, case: str, topology: dict[str, Any]) -> None:
    sizes = uneven(pool)
    algorithm = quadratics.CASES[case].make(0.1)
    a, b, x0 = quadratics.problem(sum(sizes), seed=5)
    topo = build_topology(weights=algorithm.weights, nodes=sum(sizes), **topology)
    exchange = SimulatedExchange(topo)
    start = algorithm.init(torch.from_numpy(x0).float())
    state = run(algorithm, start, quadratics.Quadratic(a, b), exchange, rounds=25)
    parts = pool.call("train", case=case, sizes=sizes, topology=topology, lr=0.1, rounds=25)
    together = stacked(parts)
    for key, value in state._asdict().items():
        torch.testing.assert_close(together[key], value, rtol=1e-5, atol=1e-6)
    assert sum(sent for _, sent, _ in parts) == exchange.bytes_sent


def topologies(case: str) -> list[dict[str, Any]]:
    if quadratics.CASES[case].make(0.1).weights == "column":
        return [
            {"kind": "one-peer-exponential", "seed": 0},
            {"kind": "resampled", "base": {"kind": "digraph", "p": 0.3}, "seed": 1, "dropout": 0.2},
            {"kind": "complete", "seed": 0},
        ]
    return [{"kind": "ring", "seed": 0}, {"kind": "erdos-renyi", "p": 0.4, "seed": 2, "dropout": 0.3}]


@pytest.mark.parametrize("case", sorted(set(rules()) - {"collaborative"}))
def test_two_ranks_do_what_the_simulator_does(two: Any, case: str) -> None:
    for topology in topologies(case):
        agree_on_a_case(two, case, topology)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(set(rules()) - {"collaborative"}))
def test_more_ranks_do_what_the_simulator_does(more: Any, case: str) -> None:
    for topology in topologies(case):
        agree_on_a_case(more, case, topology)


def agree_on_a_run(pool: Any, method: str, folder: Path) -> None:
    """Data, sampling, clip, noise, evaluation, ledgers: all of it, with seeded noise."""
    sizes = uneven(pool)
    short = {"rounds": 6, "evaluation.every": 3, "privacy.noise.source": "seeded", "privacy.claim": "none"}
    asked = settings(**METHODS[method], **short, nodes=sum(sizes))
    alone = execute(assemble(outline(RunConfig.model_validate(asked))), out=folder / "alone").result
    answers = pool.call("gossamer_run", sizes=sizes, settings=asked, out=folder / "ranks")
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    one = load_file(folder / "alone" / "checkpoints" / "round-000006.safetensors")
    two = checkpoint.load(folder / "ranks" / "checkpoints", 6, range(sum(sizes))).tensors
    assert set(one) - {"gradient.vector.slopes"} == set(two)
    for key, value in two.items():
        torch.testing.assert_close(value, one[key], rtol=1e-4, atol=1e-5)
    for node in range(sum(sizes)):
        events = [
            (folder / way / "ledger" / f"node-{node:03d}.jsonl").read_bytes() for way in ("alone", "ranks")
        ]
        assert events[0] == events[1] or "quantile" in method  # its bounds follow norms, to float tolerance
    together = answers[0]
    assert together["bytes_sent"] == alone["bytes_sent"]
    assert (
        together["epsilon_proven"] == pytest.approx(alone["epsilon_proven"])
        if alone["epsilon_proven"]
        else True
    )
    assert together["consensus_distance"] == pytest.approx(alone["consensus_distance"], rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(together["accuracy_by_node"], alone["accuracy_by_node"], atol=0.01)
    assert together["accuracy_average_model"] == pytest.approx(alone["accuracy_average_model"], abs=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_a_whole_run_on_two_ranks_is_the_simulators(two: Any, method: str, tmp_path: Path) -> None:
    agree_on_a_run(two, method, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_whole_run_on_more_ranks_is_the_simulators(more: Any, method: str, tmp_path: Path) -> None:
    agree_on_a_run(more, method, tmp_path)


TOKEN: dict[str, Any] = {
    "rounds": 24,
    "data": {"kind": "digits", "scale": "unit-sphere"},
    "model": {"kind": "one-vs-all"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "without-replacement", "lr": 0.4},
    "privacy": {
        "epsilon": 4.0, "delta": 1e-6, "sampling": {"kind": "one-pass", "lot": 20}, "noise": {"source": "seeded"}
    },
    "evaluation": {"every": 7},
}  # fmt: skip


def agree_on_a_token(pool: Any, controller: str, folder: Path) -> None:
    sizes = uneven(pool)
    config = resolve(TOKEN, {"nodes": sum(sizes), "algorithm.controller": controller})
    alone = execute(assemble(outline(config)), out=folder / "alone").result
    asked = config.model_dump(exclude_none=True)
    answers = pool.call("gossamer_run", sizes=sizes, settings=asked, out=folder / "ranks")
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    one = load_file(folder / "alone" / "checkpoints" / "round-000024.safetensors")
    for path in (folder / "ranks" / "checkpoints").iterdir():
        two = load_file(path)
        for key in ("public", "holder", "writes", "gradient.released_loss"):
            torch.testing.assert_close(two[key], one[key], rtol=1e-4, atol=1e-5)
    for node in range(sum(sizes)):
        name = f"ledger/node-{node:03d}.jsonl"
        assert (folder / "alone" / name).read_bytes() == (folder / "ranks" / name).read_bytes()
    assert answers[0]["bytes_sent"] == alone["bytes_sent"]
    np.testing.assert_allclose(answers[0]["accuracy_by_node"], alone["accuracy_by_node"], atol=0.01)


@pytest.mark.parametrize("controller", ["deep-q", "probability", "loss-threshold", "global", "local"])
def test_a_token_goes_round_two_ranks_as_in_the_simulator(two: Any, controller: str, tmp_path: Path) -> None:
    agree_on_a_token(two, controller, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("controller", ["deep-q", "global"])
def test_a_token_goes_round_more_ranks_as_in_the_simulator(
    more: Any, controller: str, tmp_path: Path
) -> None:
    agree_on_a_token(more, controller, tmp_path)


SEEDED = {"privacy.noise.source": "seeded", "privacy.claim": "none"}


def test_stopped_ranks_go_on_bit_for_bit_and_so_does_the_simulator(two: Any, tmp_path: Path) -> None:
    sizes, rounds = [2, 5], {"rounds": 12, "nodes": 7, "checkpoints.every": 4, "evaluation.every": 6}
    asked = settings(**METHODS["push-sum"], **SEEDED, **rounds)
    whole, cut, moved = tmp_path / "whole", tmp_path / "cut", tmp_path / "moved"
    two.call("gossamer_run", sizes=sizes, settings=asked, out=whole)
    for path in (cut, moved):
        answers = two.call("gossamer_run", sizes=sizes, settings=asked, out=path, stop_at=7)
        assert all("stopped by the test" in str(answer) for answer in answers)
    answers = two.call("gossamer_run", sizes=sizes, out=cut)
    assert answers[0]["rounds"] == 12
    one = checkpoint.load(whole / "checkpoints", 12, range(7)).tensors
    two_ = checkpoint.load(cut / "checkpoints", 12, range(7)).tensors
    assert all(torch.equal(one[key], two_[key]) for key in one)
    # Other blocks, and then one process, can take over the same directory.
    answers = two.call("gossamer_run", sizes=[4, 3], out=moved, stop_at=10)
    assert all("stopped by the test" in str(answer) for answer in answers)
    outcome = execute(assemble(outline(stored(moved / "config.toml"))), resume=moved)
    torch.testing.assert_close(outcome.points, one["x"] / one["w"], rtol=1e-4, atol=1e-5)
    assert outcome.result["bytes_sent"] == answers_bytes(whole)
    for node in range(7):
        name = f"ledger/node-{node:03d}.jsonl"
        assert (whole / name).read_bytes() == (cut / name).read_bytes() == (moved / name).read_bytes()


def answers_bytes(run: Path) -> int:
    return int(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["bytes_sent"])


def test_secret_noise_differs_between_ranks_and_starts_and_is_never_drawn_twice(
    two: Any, tmp_path: Path
) -> None:
    from gossamer.accounting import ledger

    asked = settings(rounds=8, nodes=4, **{"checkpoints.every": 4, "privacy.claim": "none"})
    run = tmp_path / "r"
    two.call("gossamer_run", sizes=[1, 3], settings=asked, out=run, stop_at=6)
    result = two.call("gossamer_run", sizes=[1, 3], out=run)[0]
    assert result["epsilon_proven"] <= 8.0
    for _, events in ledger.read_all(run / "ledger").values():
        assert [event.step for event in events] == list(range(8))
    assert "2 draws" in " ".join(json.loads((run / "certificate.json").read_text())["notes"])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("run", "its run is not"), ("round", "its round is not"), ("sender", "its sender is not"),
        ("place", "its place in the round is not"), ("shape", "its shape is not"), ("dtype", "its dtype is not"),
        ("checksum", "its checksum does not fit"), ("nan", "node 2 (rank 0) sent NaN"), ("inf", "node 2 (rank 0)"),
    ],
)  # fmt: skip
def test_a_wrong_message_is_refused_and_named(two: Any, spoil: str, words: str) -> None:
    answers = two.call("one_exchange", sizes=[3, 2], spoil=spoil)
    assert words in str(answers[1])
    assert "in round 7" in str(answers[1])
    if spoil not in ("nan", "inf"):
        assert "rank 0 (nodes 0–2)" in str(answers[1])
    right = two.call("one_exchange", sizes=[3, 2])  # and the ranks are as good as before
    assert all(torch.allclose(answer, torch.ones(1)) for answer in right)


def test_digraphs_of_every_round_cannot_deadlock_two_ranks(two: Any) -> None:
    mass_is_kept(two, [3, 4], rounds=60)


@pytest.mark.slow
def test_a_thousand_digraphs_cannot_deadlock_eight_ranks() -> None:
    pool = Pool(8)
    try:
        mass_is_kept(pool, [2, 1, 1, 2, 1, 1, 1, 1], rounds=1000)
    finally:
        pool.close()


def mass_is_kept(pool: Any, sizes: list[int], rounds: int) -> None:
    parts = pool.call("digraphs", sizes=sizes, rounds=rounds, seed=3)
    x, w = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    n = sum(sizes)
    assert float(w.sum()) == pytest.approx(n, rel=1e-12)
    assert float(w.std()) > 0.05  # the graphs are irregular: the weights do work
    torch.testing.assert_close(x / w, torch.full_like(x, (n - 1) / 2), rtol=1e-3, atol=1e-3)


def test_a_mistake_on_all_ranks_is_one_sentence(two: Any, tmp_path: Path) -> None:
    wrong = settings(rounds=4, nodes=4)
    wrong["topology"] = {"kind": "random-regular", "degree": 4}
    for answer in two.call("gossamer_run", sizes=[2, 2], settings=wrong, out=tmp_path / "r"):
        assert "topology.degree = 4 must be" in str(answer)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("nodes", "ranks", "sizes", "words"),
    [
        (3, 4, None, "runtime.ranks = 4 is more than nodes = 3"),
        (5, 2, [1, 2, 2], "lists 3 blocks for 2 ranks"),
        (5, 2, [1, 3], "adds up to 4 where nodes = 5"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(nodes: int, ranks: int, sizes: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        split(nodes, ranks, sizes)


def test_blocks_are_consecutive_and_about_even() -> None:
    assert split(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert split(5, 2, [1, 4]) == [range(0, 1), range(1, 5)]
