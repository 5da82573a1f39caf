"""Which graph is in force when: new draws, lost links, slow links."""

from typing import Any

import numpy as np
import pytest
from tests.support.topologies import make

from gossamer.topology.graph import Graph, Periodic, Resampled, WithDropout, WithSlowLinks, circulant
from gossamer.topology.kinds import build


def test_resampled_changes_every_k_rounds() -> None:
    topology = make("resampled", 10, base={"kind": "erdos-renyi", "p": 0.5}, every=4)
    assert topology.period is None
    epochs = [topology.edges(t) for t in range(12)]
    for t in range(12):
        same = np.array_equal(epochs[t], epochs[t - t % 4])
        assert same
    assert not np.array_equal(epochs[0], epochs[4])
    assert not np.array_equal(epochs[4], epochs[8])
    # Seeded per epoch: a far round needs none of the ones before it.
    np.testing.assert_array_equal(
        make("resampled", 10, base={"kind": "erdos-renyi", "p": 0.5}, every=4).edges(9), epochs[8]
    )
    assert make("resampled", 6, base="digraph").weights(3).shape == (6, 6)


class TestDropout:
    def test_rate(self) -> None:
        """Over 300 rounds the share of lost links is the rate within five standard deviations."""
        for kind, links in (("ring", 64), ("exponential", 64 * 6)):
            topology = build(kind, nodes=64, weights="column", seed=3, dropout=0.25)
            both = 2 if kind == "ring" else 1
            seen = sum(len(topology.edges(t)) for t in range(300)) / both
            total = 300 * links
            assert abs(seen / total - 0.75) < 5 * np.sqrt(0.75 * 0.25 / total)

    def test_undirected_edges_fail_both_ways(self) -> None:
        topology = build("erdos-renyi", nodes=20, weights="column", seed=1, dropout=0.5, p=0.4)
        for t in range(20):
            arcs = {tuple(a) for a in topology.edges(t).tolist()}
            assert arcs == {(r, s) for s, r in arcs}

    def test_rounds_and_seeds_differ(self) -> None:
        a = build("ring", nodes=50, weights="column", seed=1, dropout=0.5)
        b = build("ring", nodes=50, weights="column", seed=2, dropout=0.5)
        assert not np.array_equal(a.edges(0), a.edges(1))
        assert not np.array_equal(a.edges(0), b.edges(0))

    def test_links_fail_independently_of_each_other_and_of_time(self) -> None:
        topology = build("directed-ring", nodes=40, weights="column", seed=5, dropout=0.5)
        up = np.zeros((500, 40))
        for t in range(500):
            up[t, topology.edges(t)[:, 0]] = 1
        correlation = np.corrcoef(np.concatenate([up[1:], up[:-1]], axis=1), rowvar=False)
        np.fill_diagonal(correlation, 0)
        assert np.abs(correlation).max() < 5.5 / np.sqrt(500)

    def test_given_matrix_folds_the_lost_mass_into_the_sender(self) -> None:
        P = np.array([[0.6, 0.1, 0.0], [0.3, 0.9, 0.5], [0.1, 0.0, 0.5]])
        topology = build("matrix", nodes=3, weights="column", seed=0, dropout=0.5, matrix=P)
        lost = 0
        for t in range(30):
            kept = topology.weights(t).toarray()
            sender, receiver = topology.edges(t).T
            off = np.zeros_like(P)
            off[receiver, sender] = P[receiver, sender]
            np.testing.assert_allclose(kept, off + np.diag(1 - off.sum(axis=0)))
            lost += 4 - len(sender)
        assert 0 < lost < 4 * 30


@pytest.mark.parametrize(
    ("kind", "weights", "options"),
    [
        ("exponential", "column", {}),
        ("one-peer-exponential", "column", {}),
        ("resampled", "column", {"base": {"kind": "digraph", "p": 0.4}}),
        ("ring", "doubly", {}),
        ("erdos-renyi", "doubly", {"p": 0.5}),
    ],
)
def test_slow_links_keep_the_mass_and_have_their_turn(
    kind: str, weights: str, options: dict[str, Any]
) -> None:
    n, every = 10, 3
    plain = build(kind, nodes=n, weights=weights, seed=4, **options)
    topo = build(kind, nodes=n, weights=weights, seed=4, slow={"share": 0.6, "every": every}, **options)
    w, fewer = np.ones(n), 0
    window = every * (plain.period or 1)
    for t in range(40 * window):
        P = topo.weights(t).toarray()
        np.testing.assert_allclose(P.sum(0), 1.0, atol=1e-12)  # whatever is not sent is kept
        if weights == "doubly":
            np.testing.assert_allclose(P.sum(1), 1.0, atol=1e-12)
        w = P @ w
        there, all_ = {tuple(e) for e in topo.edges(t)}, {tuple(e) for e in plain.edges(t)}
        assert there <= all_
        fewer += len(all_) - len(there)
    assert w.sum() == pytest.approx(n, rel=1e-9)
    assert fewer > 0
    if plain.period:
        assert topo.period == window
        seen = [{tuple(e) for e in topo.edges(t)} for t in range(window)]
        assert set().union(*seen) == {tuple(e) for t in range(window) for e in plain.edges(t)}
        counts = {link: sum(link in s for s in seen) for link in set().union(*seen)}
        assert set(counts.values()) <= {1, every}  # slow ones once, the others in every period


def test_graphs_come_in_turn_and_dropout_has_no_period() -> None:
    graphs = tuple(circulant(5, [step], directed=True) for step in (1, 2, 3))
    turn = Periodic(graphs)
    assert turn.period == 3
    assert [turn.graph(t) is graphs[t % 3] for t in range(7)] == [True] * 7
    assert WithDropout(turn, 0.5, 0).period is None
    assert WithSlowLinks(turn, 0.5, 4, 0).period == 12
    assert WithSlowLinks(WithDropout(turn, 0.5, 0), 0.5, 4, 0).period is None


def test_a_draw_is_made_once_for_all_rounds_of_its_epoch() -> None:
    drawn = []

    def draw(rng: np.random.Generator) -> Graph:
        drawn.append(rng.random())
        return circulant(4, [1], directed=True)

    rounds = Resampled(draw, 5, 7)
    for t in [*range(10), 3, 8]:
        rounds.graph(t)
    assert len(drawn) == 2
    assert drawn[1] == np.random.default_rng([1, 1, 7]).random()  # of its epoch and the seed alone


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_slow_links_is_that_asked_for(share: float) -> None:
    base = Periodic((circulant(400, [1, 2, 3, 4, 5], directed=True),))
    slow = WithSlowLinks(base, share, 2, 3)
    missing = 1 - np.mean([len(slow.graph(t).arcs) for t in range(2)]) / 2000  # half of their messages
    assert abs(missing - share / 2) < 5 * np.sqrt(0.25 * share * (1 - share) / 2000) + 1e-12
