"""σ_eff of cancelling noise: closed form, enumeration and spectrum against brute force over all coalitions."""

import math
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting import secrets as module
from gossamer.accounting.secrets import Secrets, checked_edges, known, remember

HOPS = {1, 2, 4, 8, 16, 32}


def brute_force(n, edges, q, ratio):
    """From the masks themselves: y = z + Σ ± √r e; who knows the coalition's z and e projects the others' out."""
    worst = 0.0
    for members in combinations(range(n), q):
        honest = [i for i in range(n) if i not in members]
        columns = [np.eye(n)[i] for i in honest]
        for i, j in edges:
            if i in honest and j in honest:
                columns.append(math.sqrt(ratio) * (np.eye(n)[i] - np.eye(n)[j]))
        noise = np.stack(columns, axis=1)[honest]
        inverse = np.linalg.inv(noise @ noise.T)
        worst = max(worst, float(inverse.diagonal().max()))
    return 1 / math.sqrt(worst)


@st.composite
def graphs(draw):
    n = draw(st.integers(2, 8))
    pairs = list(combinations(range(n), 2))
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return n, edges, draw(st.integers(0, n - 1)), draw(st.floats(1e-3, 1e4))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_what_is_kept_is_brute_force_over_all_coalitions(case):
    n, edges, q, ratio = case
    assert Secrets.of(n, edges).effective_noise(q, ratio) == pytest.approx(brute_force(n, edges, q, ratio), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_the_worst_coalition_sees_what_all_are_promised_at_most(case):
    n, edges, q, ratio = case
    secrets = Secrets.of(n, edges)
    members, node = secrets.worst_coalition(q, ratio, [1.0] * n)
    assert len(members) == q
    assert node not in members
    assert secrets.effective_noise_against(members, ratio, node) == pytest.approx(
        secrets.effective_noise(q, ratio), rel=1e-6
    )


def test_the_worst_coalition_is_after_the_node_with_the_least_noise():
    assert Secrets.complete(4).worst_coalition(2, 100.0, [1.0] * 4) == ((2, 3), 0)
    assert Secrets.complete(4).worst_coalition(2, 100.0, [2.0, 2.0, 1.0, 2.0]) == ((1, 3), 2)


def test_of_coalitions_too_many_to_try_the_neighbours_of_a_node_are_one():
    members, node = Secrets.exponential(64).worst_coalition(6, 100.0, [1.0] * 64)
    assert len(members) == 6
    assert all((node - i) % 64 in HOPS or (i - node) % 64 in HOPS for i in members)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 100.0])
def test_the_closed_form_of_complete_secrets(n, ratio):
    for q in range(n):
        expected = brute_force(n, list(combinations(range(n), 2)), q, ratio)
        assert Secrets.complete(n).effective_noise(q, ratio) == pytest.approx(expected, rel=1e-6)
        assert Secrets.complete(n).effective_noise(q, ratio) <= expected  # rounded down, never up


def test_all_but_one_colluding_leaves_own_noise():
    for secrets in (Secrets.complete(7), Secrets.exponential(7)):
        assert secrets.effective_noise(6, 100.0) == 1.0


def test_the_variance_that_the_plan_of_twenty_nodes_gains():
    assert Secrets.complete(20).effective_noise(1, 100.0) ** 2 == pytest.approx(18.8, rel=1e-2)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_the_spectrum_never_says_more_than_the_coalitions(case):
    n, edges, q, ratio = case
    secrets = Secrets.of(n, edges)
    exact = secrets.effective_noise(q, ratio)
    module._effective_noise.cache_clear()
    kept, module._MOST_SETS = module._MOST_SETS, 0
    try:
        assert secrets.effective_noise(q, ratio) <= exact * (1 + 1e-6)
    finally:
        module._MOST_SETS = kept
        module._effective_noise.cache_clear()


@pytest.mark.parametrize("n", [3, 8, 13, 40])
def test_the_spectrum_of_the_exponential_graph(n):
    secrets = Secrets.exponential(n)
    spectrum = np.linalg.eigvalsh(secrets.laplacian)
    assert secrets.algebraic_connectivity == pytest.approx(spectrum[1], abs=1e-6)
    assert secrets.algebraic_connectivity <= spectrum[1]


@settings(max_examples=40, deadline=None)
@given(graphs(), st.data())
def test_against_given_nodes(case, data):
    n, edges, q, ratio = case
    secrets = Secrets.of(n, edges)
    members = data.draw(st.permutations(range(n)))[:q]
    assert secrets.effective_noise_against(members, ratio) >= secrets.effective_noise(q, ratio) * (1 - 1e-6)
    honest = [i for i in range(n) if i not in members]
    each = [secrets.effective_noise_against(members, ratio, node=u) for u in honest]
    assert min(each) == pytest.approx(secrets.effective_noise_against(members, ratio))


def test_against_everybody_or_itself_nothing_is_kept_but_own_noise():
    assert Secrets.complete(3).effective_noise_against([0, 1, 2], 100.0) == 1.0
    assert Secrets.complete(3).effective_noise_against([0], 100.0, node=0) == 1.0


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_more_colluders_and_weaker_masks_keep_less(case):
    n, edges, q, ratio = case
    secrets = Secrets.of(n, edges)
    assert secrets.effective_noise(min(q + 1, n - 1), ratio) <= secrets.effective_noise(q, ratio) * (1 + 1e-9)
    assert secrets.effective_noise(q, ratio / 2) <= secrets.effective_noise(q, ratio) * (1 + 1e-9)
    assert secrets.effective_noise(q, ratio) >= 1.0


def test_connectivity_without_some_nodes():
    path = Secrets.of(4, [(0, 1), (1, 2), (2, 3)])
    assert path.stays_connected(0)
    assert not path.stays_connected(1)
    ring = Secrets.of(5, [(i, (i + 1) % 5) for i in range(5)])
    assert ring.stays_connected(1)
    assert not ring.stays_connected(2)
    assert Secrets.complete(4).stays_connected(3)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_connectivity_is_what_removing_nodes_shows(case):
    n, edges, q, _ = case
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(n))
    left = [graph.subgraph(set(range(n)) - set(members)) for members in combinations(range(n), q)]
    assert Secrets.of(n, edges).stays_connected(q) == all(nx.is_connected(part) for part in left)


def test_who_shares_with_the_fewest_is_alone_if_these_collude():
    assert Secrets.complete(9).least_degree == 8
    assert Secrets.of(4, [(0, 1), (1, 2)]).least_degree == 0
    star = Secrets.of(50, [(0, i) for i in range(1, 50)])
    assert star.least_degree == 1
    assert star.effective_noise(0, 100.0) > 1.0
    assert [star.effective_noise(q, 100.0) for q in (1, 2, 25)] == [1.0] * 3


def test_a_digest_names_a_graph_however_it_is_written():
    one, other = Secrets.of(4, [(0, 1), (2, 1)]), Secrets.of(4, [(1, 2), (1, 0), (0, 1)])
    assert one == other
    assert one.digest == other.digest
    assert one.digest != Secrets.of(5, [(0, 1), (2, 1)]).digest
    assert Secrets.of(3, combinations(range(3), 2)) == Secrets.complete(3)


def test_what_follows_from_the_number_of_nodes_is_known_and_the_rest_must_be_remembered():
    for made in (Secrets.complete(11), Secrets.exponential(11)):
        assert known(made.digest, 11) == made
    own = Secrets.of(11, [(0, 1), (1, 2), (0, 9)])
    assert known(own.digest, 11) is None
    remember(own)
    assert known(own.digest, 11) == own


@pytest.mark.parametrize(
    "listed", [5, "0-1", [[0]], [[0, 1, 2]], [[0, 0]], [[0, 9]], [[-1, 0]], [[0, True]], [[0.0, 1]]]
)
def test_edges_of_a_file_are_checked(listed):
    with pytest.raises(ValueError, match="are no"):
        checked_edges(listed, 4)
    assert checked_edges([[0, 1], [3, 2]], 4) == [(0, 1), (3, 2)]


def test_a_digest_says_nothing_of_another_number_of_nodes():
    for graph in (Secrets.complete(12), Secrets.of(12, [(i, (i + 1) % 12) for i in range(12)])):
        remember(graph)
        assert known(graph.digest, 12) == graph
        assert known(graph.digest, 3) is None
        assert known(graph.digest, 1000) is None


def test_a_digest_that_nobody_knows_is_no_work():
    for _ in range(1000):
        assert known("0" * 32, module.MOST_EXPONENTIAL + 1) is None


def test_a_listed_graph_of_many_edges_is_priced_again_and_again():
    graph = Secrets.of(500, [(i, j) for i in range(500) for j in range(i) if (i, j) != (1, 0)])
    assert graph.effective_noise(2, 100.0) < graph.effective_noise(1, 100.0)
    for _ in range(1000):
        graph.effective_noise(1, 100.0)


def test_a_long_ring_holds_together_without_any_one_node():
    ring = Secrets.of(1000, [(i, (i + 1) % 1000) for i in range(1000)])
    assert ring.stays_connected(0)
    assert ring.stays_connected(1)
    assert not ring.stays_connected(2)
