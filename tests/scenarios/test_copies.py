"""Copies of a record on several nodes: priced together, from plan to certificate, and no door shows one node's ε."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.ledgers import write_histories
from tests.support.refusals import expect_refusal
from tests.support.without_replacement import DIGITS

from gossamer.accounting.ledger import LedgerError, read_all
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import recompute, worst_epsilon
from gossamer.accounting.releases import Gaussian
from gossamer.config.schema import RunConfig
from gossamer.mechanism.noise.base import SilentNoise
from gossamer.results.console import summary
from gossamer.results.verify import verify_run
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.data import split
from gossamer.training.manifest import require_same_everywhere
from gossamer.training.plan import Plan
from gossamer.training.run import execute

NODES, SIGMA, ROUNDS, DELTA = 4, 30.0, 12, 1e-5
FULL: dict[str, Any] = {
    "nodes": NODES,
    "rounds": ROUNDS,
    "algorithm__kind": "dp-dsgd",
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "privacy__clip": {"kind": "constant", "bound": 1.0},
    "privacy__sampling": {"kind": "full"},
    "privacy__epsilon": None,
    "privacy__delta": DELTA,
    "privacy__adjacency": "add-remove",
    "privacy__noise": {"multiplier": SIGMA},
}


SWAP = {"privacy__adjacency": "replace-one"}


def sampled(size: Any = 90, copies: int | None = None) -> dict[str, Any]:
    return {"kind": "sampled", "size": size, **({} if copies is None else {"copies": copies})}


@pytest.mark.parametrize("copies", [1, 2, 3, None])
def test_full_lots_cost_as_one_gaussian_of_all_copies(copies: int | None) -> None:
    o = outlined(**FULL, data__partition=sampled(copies=copies))
    k = NODES if copies is None else copies
    expected = gdp_epsilon(math.sqrt(k * ROUNDS) / SIGMA, DELTA)
    assert o.privacy.figures()["epsilon_proven"] == pytest.approx(expected, rel=1e-9)
    assert [p for _, p in o.privacy.epsilon_after([1, ROUNDS])] == pytest.approx(
        [gdp_epsilon(math.sqrt(k) / SIGMA, DELTA), expected], rel=1e-9
    )
    unit = summary(o)["unit"]
    assert unit == (
        "one record of one node" if k == 1 else f"one record, wherever copies of it are: on up to {k} nodes"
    )


@pytest.mark.parametrize("sampling", [{"kind": "poisson", "rate": 0.2}, {"kind": "balls-and-bins", "lots": 4}])
def test_sampled_lots_cost_as_many_runs_of_one_node(sampling: dict[str, Any]) -> None:
    """Every node draws its lots for itself: k nodes are k times the draws, or k times the passes."""
    changes = {**FULL, "privacy__sampling": sampling, "privacy__noise": {"multiplier": 2.0}}
    together = outlined(**changes, data__partition=sampled(copies=3)).privacy.worst.proven.epsilon
    longer = outlined(
        **{**changes, "rounds": 3 * ROUNDS}, data__partition=sampled(copies=1)
    ).privacy.worst.proven.epsilon
    alone = outlined(**changes, data__partition=sampled(copies=1)).privacy.worst.proven.epsilon
    assert together == pytest.approx(longer, rel=1e-6)
    assert together > 1.3 * alone


def test_the_budget_is_met_by_all_copies_together() -> None:
    asked = {**FULL, "privacy__epsilon": 1.0, "privacy__noise": {"multiplier": None}}
    one, four = (outlined(**asked, data__partition=sampled(copies=k)).privacy for k in (1, 4))
    assert four.worst.proven.epsilon == pytest.approx(1.0, rel=1e-6)
    assert four.worst.factor == pytest.approx(2 * one.worst.factor, rel=1e-6)  # √4
    # With noise that is given, the hard stop is that of all copies.
    given = {**FULL, "rounds": 400, "privacy__epsilon": 1.0}
    stops = [outlined(**given, data__partition=sampled(copies=k)).privacy.worst.allowance for k in (1, 4)]
    assert stops[1] == stops[0] // 4


def test_without_replacement_counts_the_passes_of_every_copy() -> None:
    plans = [
        outlined(DIGITS, algorithm__controller="pass-end", data__partition=sampled(copies=k)).privacy for k in (1, 2)
    ]
    assert plans[1].worst.factor == pytest.approx(math.sqrt(2) * plans[0].worst.factor, rel=1e-6)


def shared_record(config: RunConfig, parts: Any) -> tuple[int, list[int]]:
    """A record that all nodes hold: (its row, its place in the records of each)."""
    pieces = split(config, parts.dataset)
    row = next(iter(set.intersection(*(set(piece.tolist()) for piece in pieces))))
    starts = np.cumsum([0, *map(len, pieces)])
    return row, [int(start + np.flatnonzero(piece == row)[0]) for start, piece in zip(starts, pieces, strict=False)]


def test_a_record_on_two_nodes_moves_more_than_one_node_is_priced_for() -> None:
    """The attack that one node's ε does not cover: the releases of both, without their noise."""
    config = configured(
        **{
            **FULL,
            "nodes": 2,
            "topology": {"kind": "complete"},
            "privacy__noise": {"multiplier": SIGMA, "source": "seeded"},
            **SWAP,
        },
        data__partition=sampled(size=1000),
    )
    o = Plan.of(config)
    parts = assemble(o)
    parts = replace(parts, noise=SilentNoise(parts.noise.levels))
    _, places = shared_record(config, parts)

    class Nowhere:
        def write(self, releases: Any) -> None: ...

    released = []
    for sign in (1.0, -1.0):  # one record, or its opposite: both clipped to the bound
        parts.records.x[places] = sign * 100.0
        parts.records.y[places] = 3
        released.append(parts.reader(Nowhere())(torch.zeros_like(parts.x0)))
    divisors = torch.tensor([node.lot / node.weight for node in o.privacy.nodes])[:, None]
    moved = (((released[0] - released[1]) * divisors).norm(dim=1) / SIGMA).tolist()
    one_node, all_copies = (
        math.sqrt(sum((2 / event.release.noise_multiplier) ** 2 for event in events))
        for events in (
            o.privacy.events(replace(o.privacy.worst, rate=1.0, allowance=1)),
            o.privacy.planned(o.privacy.worst)[:2],
        )
    )
    assert moved == pytest.approx([one_node, one_node], rel=1e-3)
    assert one_node < 1.4 * one_node < math.hypot(*moved) <= all_copies * (1 + 1e-4)


def ledgers_of(folder: Path, histories: list[list[Gaussian]], copies: int) -> Path:
    header = {
        "delta": DELTA,
        "adjacency": "add-remove",
        "unit": "one record",
        "noise": "system",
        "copies": copies,
    }
    return write_histories(folder, histories, **header)


def gaussian(sigma: float, sampling: str, rate: float, number: int | None = None) -> Gaussian:
    return Gaussian(
        sigma=sigma, sensitivity=1.0, sampling=sampling, rate=rate, adjacency="add-remove", pass_number=number
    )


HISTORIES = {
    "full lots": [[gaussian(s, "full", 1.0)] * n for s, n in ((9.0, 4), (5.0, 1), (20.0, 9))],
    "sampled lots": [[gaussian(s, "poisson", q)] * n for s, q, n in ((0.8, 0.01, 9), (2.0, 0.3, 5), (4.0, 1.0, 2))],
    "passes": [[gaussian(6.0, "one-pass", 0.5, number) for number in own] for own in ([0, 0, 1], [2], [0, 3, 3])],
}


@pytest.mark.parametrize("name", list(HISTORIES))
@pytest.mark.parametrize("copies", [2, 3])
def test_no_choice_of_nodes_costs_more_than_the_ledgers_say(tmp_path: Path, name: str, copies: int) -> None:
    """By brute force over the nodes that may hold a record, each with a history of its own."""
    histories = HISTORIES[name]
    folder = ledgers_of(tmp_path, histories, copies)
    stated = {proof.proven.epsilon for proof in recompute(folder)}
    assert len(stated) == 1  # what a record costs does not depend on whose ledger is asked
    # Passes of two nodes are different passes; other releases have none.
    apart = [[gaussian_on(node, one) for one in own] for node, own in enumerate(histories)]
    for chosen in itertools.combinations(apart, copies):
        assert proven([one for own in chosen for one in own], DELTA, "add-remove").epsilon <= max(stated) * (1 + 1e-9)
    assert worst_epsilon([folder]) == pytest.approx(max(stated), rel=1e-9)
    # A node's ledger alone is priced with all that lie beside it.
    assert recompute(folder, [1])[0].proven.epsilon == max(stated)


def gaussian_on(node: int, one: Gaussian) -> Gaussian:
    number = None if one.pass_number is None else 10 * node + one.pass_number
    return gaussian(one.sigma, one.sampling, one.rate, number)


def test_nodes_that_do_the_same_cost_no_more_than_that(tmp_path: Path) -> None:
    folder = ledgers_of(tmp_path, [[gaussian(9.0, "full", 1.0)] * 4] * 5, copies=3)
    assert recompute(folder)[0].proven.epsilon == pytest.approx(gdp_epsilon(math.sqrt(12) / 9, DELTA), rel=1e-9)


@pytest.mark.parametrize("copies", [0, -1, "3", 2.0, True])
def test_a_first_line_without_a_number_of_copies_is_damaged(tmp_path: Path, copies: Any) -> None:
    folder = ledgers_of(tmp_path, [[gaussian(9.0, "full", 1.0)]], copies)
    with expect_refusal(key="ledger.jsonl", names="copies", error=LedgerError):
        recompute(folder)


@pytest.mark.parametrize("controller", ["pass-end", "deep-q"])
def test_run_ledger_and_certificate_say_the_same(tmp_path: Path, controller: str) -> None:
    config = configured(
        DIGITS, algorithm__controller=controller, data__partition=sampled(copies=3), privacy__sampling__lot=15
    )
    out = execute(assemble(Plan.of(config)), out=tmp_path / "run")
    proofs = recompute(out.directory)
    verify_run(out.directory)  # raises where they do not agree
    joint = {entry["proven"] for entry in out.certificate["epsilon_by_node"]}
    assert joint == {proofs[0].proven.epsilon}
    assert 0.9 < out.result["epsilon_proven"] <= 1.0
    assert out.certificate["unit"].endswith("on up to 3 nodes")
    assert all(header["copies"] == 3 for header, _ in read_all(out.directory).values())
    # What one node alone would cost stands nowhere: not in the certificate, not over the rounds.
    _, own = read_all(out.directory)[0]
    alone = proven(own, config.privacy.delta, "replace-one").epsilon
    assert alone < 0.7
    last = json.loads((out.directory / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epsilon_proven"] > 0.9


def test_unequal_nodes_are_refused() -> None:
    with expect_refusal(key="data.partition.kind", value="sampled"):
        outlined(
            **{**FULL, "privacy__sampling": {"kind": "poisson", "lot": 9}},
            data__partition=sampled(size=[90, 91, 92, 93]),
        )
    with expect_refusal(key="data.partition.kind", value="sampled"):
        outlined(**{**FULL, "privacy__epsilon": [0.5, 1.0, 1.0, 1.0]}, data__partition=sampled())


def test_ledgers_on_several_machines_are_refused() -> None:
    """They could not be priced together: each machine sees its own."""
    parts = assemble(outlined(**FULL, data__partition=sampled()))

    class Far(Alone):
        spread = True

    with expect_refusal(key="data.partition.kind", value="sampled"):
        require_same_everywhere(parts, Far(NODES))
