"""What a private evaluation costs: by the closed form of Gaussian releases on all records."""

from __future__ import annotations

import math

import pytest
from tests.support.configurations import outlined

from gossamer.accounting.gaussian import gdp_mu
from gossamer.accounting.proven import proven
from gossamer.planning.evaluation import evaluation_events


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("times", [1, 3])
def test_alone_it_costs_its_share(adjacency: str, times: int) -> None:
    events = evaluation_events(0.25, adjacency, step=10, epsilon=4.0, delta=1e-5, times=times)
    assert [event.step for event in events] == [10]
    found = proven(events * times, 1e-5, adjacency)
    assert found.epsilon == pytest.approx(1.0, rel=0.01)
    assert found.epsilon <= 1.0 + 1e-6
    silent = evaluation_events(0.5, adjacency, step=1, epsilon=None, delta=1e-5, times=1)
    assert silent[0].release.noise_multiplier == 0


def test_training_gets_what_is_left_and_the_last_round_says_all(tmp_path: object) -> None:
    """Full lots: μ² of all releases add up, so the noise of the draws has a closed form."""
    from dataclasses import replace

    plain = outlined(rounds=6, privacy__sampling={"kind": "full"}, privacy__epsilon=2.0).plan
    node = plain.nodes[0]
    event = evaluation_events(0.3, plain.adjacency, step=plain.draws, epsilon=2.0, delta=node.delta, times=1)[
        0
    ]
    paid = replace(plain, after=(event,))
    assert len(paid.planned(node)) == plain.draws + 1
    assert plain.after == ()
    mu = gdp_mu(2.0, node.delta)
    of_draws = math.sqrt(sum((node.factor * plain.shape(k)) ** -2 for k in range(plain.draws)))
    assert of_draws == pytest.approx(mu, rel=0.01)
    both = math.hypot(mu, gdp_mu(0.6, node.delta))
    total = proven(paid.planned(node), node.delta, plain.adjacency).epsilon
    assert gdp_mu(total, node.delta) == pytest.approx(both, rel=0.01)
    before, last = paid.epsilon_after([5, 6])
    assert before[1] is not None
    assert before[1] < 2.0
    assert last[1] == pytest.approx(total, rel=1e-6)  # no ε beside the figures that does not cover them
