"""ε by observer from a plan: nodes, coalitions, outsiders; and runs that have none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.configurations import outlined
from tests.support.refusals import expect_refusal
from tests.support.signed_runs import relaid

from gossamer.accounting.network import Floats, Ints
from gossamer.training.assemble import assemble
from gossamer.training.run import execute
from gossamer.training.views import deviations_of, network_plan

EXACT = {
    "algorithm__mixes": "exact", "privacy__claim": "none", "privacy__sampling": {"kind": "full"}, "rounds": 20,
}  # fmt: skip


def test_every_observer_sees_less_than_everyone() -> None:
    o = outlined(**EXACT)
    network = network_plan(o)
    everyone = o.privacy.worst.proven.epsilon
    pairs, outside = network.by_pair(), network.of_outsider()
    assert network.exchanges.orders.shape == (20, 8)
    assert np.nanmax(pairs) < everyone
    assert outside.max() < np.nanmin(pairs)
    both = network.of_coalition([0, 3])
    for v in (0, 3):
        others = [u for u in range(8) if u not in (0, 3)]
        assert (both[others] >= pairs[v, others] * (1 - 1e-3)).all()


def test_the_schedule_is_the_one_that_runs() -> None:
    """Who hears the node before it in the first exchange of mean k, by the network's own matrix."""
    o = outlined(**EXACT)
    exchanges = network_plan(o).exchanges
    for mean in (0, 7):
        P = o.topology.weights(3 * mean).toarray()
        for place in range(8):
            receiver, sender = exchanges.orders[mean, place], exchanges.orders[mean, place - 1]
            assert P[receiver, sender] == 1.0
        np.testing.assert_array_equal(exchanges.heard(mean, [2])[:, :].sum(), 7)


def test_noise_that_is_not_each_nodes_own() -> None:
    """Masks between all pairs, as large as ten times the noise: less is seen by everyone but an outsider."""
    plain = network_plan(outlined(**EXACT))

    def masked(mean: int, honest: Ints) -> Floats:
        m = len(honest)
        return np.eye(m) + 10 * (m * np.eye(m) - np.ones((m, m)))

    network = replace(plain, noise=masked)
    pairs, own = network.by_pair(), plain.by_pair()
    apart = ~np.eye(8, dtype=bool)
    assert (pairs[apart] < own[apart]).all()
    np.testing.assert_allclose(network.of_coalition([2])[3:], pairs[2, 3:], rtol=1e-3)
    np.testing.assert_allclose(network.of_outsider(), plain.of_outsider(), rtol=2e-2)


def test_ledgers_say_what_was_planned_also_after_a_stop(tmp_path: Path) -> None:
    """Two draws are lost at a stop; what follows has numbers, and places, of its own, and the total is as planned."""
    o = outlined(**{**EXACT, "rounds": 8}, checkpoints__every=4)
    network = network_plan(o)
    stopped = tmp_path / "run"

    def stop(t: int) -> None:
        if t == 6:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError):
        execute(assemble(o), out=stopped, on_round=stop)
    outcome = execute(assemble(o), resume=stopped)
    assert set(outcome.certificate["draws"]) == {8}
    assert all(torch.equal(row, outcome.points[0]) for row in outcome.points)
    written = network.as_written(stopped)
    assert [event.draw for event in written.histories[0]] == list(range(8))
    np.testing.assert_allclose(written.by_pair(), network.by_pair(), rtol=1e-4)
    np.testing.assert_allclose(written.of_outsider(), network.of_outsider(), rtol=1e-4)
    # Of draws that were not planned nothing would be seen, and ε of a coalition would be 0.
    fewer = replace(network, histories=tuple(own[:4] for own in network.histories))
    with expect_refusal(key="run", names="4 0"):
        fewer.as_written(stopped)
    shutil.copytree(stopped, tmp_path / "fewer")
    relaid(tmp_path / "fewer", [range(7)])
    with expect_refusal(key="fewer", names="7 8"):
        network.as_written(tmp_path / "fewer")


def test_sizes_weigh_and_budgets_end() -> None:
    sizes = {"data__partition": {"kind": "sizes", "sizes": [90] * 4 + [180] * 4}, "weighting": "size"}
    o = outlined(**EXACT, **sizes, privacy__noise__multiplier=4.0, privacy__epsilon=[2.0] * 4 + [8.0] * 4)
    deviations = deviations_of(o.config, o.privacy)
    assert (deviations[0] > 0).all()
    assert (deviations[-1] == 0).any()
    network = network_plan(o)
    np.testing.assert_allclose(network.of_coalition([6])[:6], network.by_pair()[6, :6], rtol=1e-3)
    assert np.isfinite(network.of_outsider()).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm__mixes": 3}, "--observer gradients"),
        ({"topology__kind": "ring"}, "--observer gradients"),
        ({"privacy__clip": {"kind": "quantile"}}, "what counts"),
    ],
)
def test_runs_without_a_view_are_refused(changes: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        network_plan(outlined(**{**EXACT, **changes}))


def test_pairwise_noise_is_seen_with_its_masks_and_priced_from_the_ledgers(tmp_path: Path) -> None:
    """Against the covariance written out, against everyone with that node's secrets, and from what is on file."""
    masked = {**EXACT, "privacy__noise__family": {"kind": "pairwise", "ratio": 10.0}}
    o = outlined(**masked)
    network = network_plan(o)
    pairs = network.by_pair()
    assert network.all_alike
    # Nodes of 180 and of 179 records state slightly different noise: all go by the general formula, too.
    general = replace(network, all_alike=False).by_pair()
    np.testing.assert_allclose(pairs, general, rtol=1e-3)
    everyone = [o.privacy.noise.secrets.effective_noise_against([v], 10.0) for v in range(8)]
    assert min(everyone) > 2
    assert np.nanmax(pairs) <= o.privacy.worst.proven.epsilon
    np.testing.assert_allclose(network.of_coalition([2])[3:], pairs[2, 3:], rtol=1e-3)
    assert network.of_outsider().max() <= np.nanmin(pairs) * (1 + 1e-3)
    execute(assemble(o), out=tmp_path / "run")
    np.testing.assert_allclose(network.as_written(tmp_path / "run").by_pair(), pairs, rtol=1e-3)


def test_pairwise_noise_by_a_list_of_secrets_has_a_view_too() -> None:
    ring = [[i, (i + 1) % 8] for i in range(8)]
    o = outlined(**EXACT, privacy__noise__family={"kind": "pairwise", "secrets": ring})
    network = network_plan(o)
    assert not network.all_alike
    assert np.nanmax(network.by_pair()) <= o.privacy.worst.proven.epsilon
