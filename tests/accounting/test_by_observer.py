"""ε by observer: the curve over colluding nodes holds at every point, and is as planned where it was planned."""

import math

import pytest

from gossamer.accounting.observers import EVERYONE, UNIT, colluders
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import MOST_POINTS, Sharing, Spent, sharing
from gossamer.accounting.releases import Gaussian, Pairwise
from gossamer.accounting.secrets import Secrets, remember
from gossamer.results.certificate import by_observer

COMMON = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}


def pairwise(nodes=20, colluders=1, secrets=None, **changes):
    graph = secrets or Secrets.complete(nodes)
    remember(graph)
    own = {"sigma": 4.0, "nodes": nodes, "colluders": colluders, "ratio": 100.0, "secrets": graph.digest}
    return Pairwise(**{**COMMON, **own, **changes})


def spent(*releases, count=50, delta=1e-5, tolerance=0.01):
    history = tuple((one, count) for one in releases)
    epsilon = proven(history, delta, "add-remove", tolerance=tolerance).epsilon
    return Spent(history, delta, "add-remove", epsilon)


def test_noise_of_each_nodes_own_is_the_same_to_all_and_has_one_line():
    assert sharing([Gaussian(sigma=2.0, **COMMON)]) is None
    assert sharing([]) is None
    found = by_observer(None, [], planned=EVERYONE, epsilon=math.inf, delta=1e-5, adjacency="add-remove", unit=UNIT)
    (line,) = found["epsilon_by_observer"]
    assert line == {
        "observer": "all", "words": EVERYONE.description, "colluders": None, "epsilon": None, "delta": 1e-5,
        "adjacency": "add-remove", "unit": UNIT, "planned": True,
    }  # fmt: skip
    assert found["epsilon_by_colluders"] == []


def test_full_lots_have_a_figure_for_every_number_of_colluders():
    one = spent(pairwise())
    shared = sharing([pairwise()])
    assert shared == Sharing(20, 1, tuple(range(20)))
    expected = [gdp_epsilon(math.sqrt(50) / pairwise().seen_by(colluders(q)).sigma, 1e-5) for q in range(20)]
    found = shared.epsilons(one)
    assert found == pytest.approx(expected, rel=1e-9)
    assert found == sorted(found)
    assert found[1] == one.epsilon
    assert found[19] == pytest.approx(gdp_epsilon(math.sqrt(50) / 4.0, 1e-5))


@pytest.mark.parametrize(("nodes", "planned"), [(41, 1), (100, 7), (1000, 0), (1000, 499), (100_000, 99_999)])
def test_of_many_nodes_some_numbers_stand_for_all(nodes, planned):
    shared = sharing([pairwise(nodes, planned)])
    assert {0, planned, nodes // 2, nodes - 1} <= set(shared.at)
    assert 15 <= len(shared.at) <= MOST_POINTS
    assert list(shared.at) == sorted(set(shared.at))
    assert shared.at[-1] == nodes - 1


def test_sampled_lots_have_few_figures_all_of_them_upper_bounds():
    release = pairwise(8, sampling="poisson", rate=0.2)
    shared = sharing([release])
    assert shared.at == (0, 1, 2, 4, 7)
    one = spent(release, count=20)
    found = shared.epsilons(one)
    assert found[1] == one.epsilon
    assert found == sorted(found)
    for q, figure in zip(shared.at, found, strict=True):
        sharp = proven(one.history, one.delta, one.adjacency, observer=colluders(q))
        assert sharp.lower <= figure <= 1.06 * sharp.epsilon


def test_a_bound_for_more_colluders_holds_for_fewer_and_the_planned_figure_stays():
    # By the spectrum the bound for 6 colluders is that for all others: what few coalitions show is better.
    graph = Secrets.exponential(70)
    release = pairwise(70, 6, graph)
    one = spent(release)
    shared = sharing([release])
    found = shared.epsilons(one)
    assert found == sorted(found)
    assert found[shared.at.index(6)] == one.epsilon
    for q, figure in zip(shared.at, found, strict=True):
        alone = proven(one.history, one.delta, one.adjacency, observer=colluders(q)).epsilon
        assert figure <= max(alone, one.epsilon) * (1 + 1e-12)
        complete = gdp_epsilon(math.sqrt(50) / pairwise(70).seen_by(colluders(q)).sigma, 1e-5)
        assert figure >= complete * (1 - 1e-6)  # no graph has more secrets


@pytest.mark.parametrize(
    ("nodes", "planned", "reported"),
    [
        (8, 1, (0, 1, 4, 7)),
        (8, 0, (0, 1, 4, 7)),
        (8, 7, (0, 4, 7)),
        (2, 1, (0, 1)),
        (2, 0, (0, 1)),
        (1, 0, (0,)),
    ],
)
@pytest.mark.parametrize("sampling", [{}, {"sampling": "poisson", "rate": 0.2}])
def test_what_is_reported_has_a_figure(nodes, planned, reported, sampling):
    shared = sharing([pairwise(nodes, planned, **sampling)])
    assert shared.reported == reported
    assert {*reported, planned} <= set(shared.at)


def test_the_worst_node_counts_at_each_number():
    weak, strong = spent(pairwise(sigma=3.0)), spent(pairwise(sigma=9.0))
    shared = sharing([pairwise()])
    assert shared.worst([strong, weak, strong]) == shared.epsilons(weak)


def test_the_lines_are_complete_and_one_of_them_is_planned():
    shared = sharing([pairwise(8, 2)])
    one = spent(pairwise(8, 2))
    found = by_observer(
        shared,
        shared.worst([one]),
        planned=colluders(2),
        epsilon=one.epsilon,
        delta=1e-5,
        adjacency="add-remove",
        unit=UNIT,
    )
    lines = found["epsilon_by_observer"]
    assert [line["observer"] for line in lines] == ["all+0", "all+2", "all+4", "all+7"]
    assert [line["planned"] for line in lines] == [False, True, False, False]
    assert lines[1]["epsilon"] == one.epsilon
    curve = {point["colluders"]: point["epsilon"] for point in found["epsilon_by_colluders"]}
    assert list(curve) == list(range(8))
    for line in lines:
        assert line["epsilon"] == curve[line["colluders"]]
        assert line["words"] == colluders(line["colluders"]).description
        assert (line["delta"], line["adjacency"], line["unit"]) == (1e-5, "add-remove", UNIT)


def test_where_nothing_is_proven_there_is_no_figure():
    one = spent(pairwise(8, sensitivity=math.inf))
    shared = sharing([release for release, _ in one.history])
    assert set(shared.epsilons(one)) == {math.inf}
    found = by_observer(
        shared,
        shared.worst([one]),
        planned=colluders(1),
        epsilon=math.inf,
        delta=1e-5,
        adjacency="add-remove",
    )
    assert {line["epsilon"] for line in found["epsilon_by_observer"]} == {None}
