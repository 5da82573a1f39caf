"""What a release with cancelling noise is to each observer."""

import math

import pytest
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, coalition, colluders
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import curve, profile, proven
from gossamer.accounting.releases import Event, Gaussian, Pairwise
from gossamer.accounting.secrets import Secrets

COMMON = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}


def pairwise(**changes):
    nodes = changes.get("nodes", 20)
    own = {
        "sigma": 2.0,
        "nodes": nodes,
        "colluders": 1,
        "ratio": 100.0,
        "secrets": Secrets.complete(nodes).digest,
    }
    return Pairwise(**{**COMMON, **own, **changes})


def test_it_is_a_gaussian_of_more_noise_the_fewer_collude():
    one = pairwise()
    sigmas = [one.seen_by(colluders(q)).sigma for q in range(20)]
    assert all(isinstance(one.seen_by(colluders(q)), Gaussian) for q in range(20))
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[19] == 2.0
    assert sigmas[1] == pytest.approx(2.0 / math.sqrt(1 / 19 + (18 / 19) / 1901))


def test_all_other_nodes_may_collude_at_the_most():
    assert pairwise().most_colluders == 19
    assert pairwise().seen_by(colluders(1)).most_colluders is None


def test_who_does_not_say_whose_secrets_it_holds_counts_as_planned():
    for observer in (EVERYONE, FINAL_MODELS):
        assert pairwise(colluders=3).seen_by(observer) == pairwise().seen_by(colluders(3))
    assert pairwise(colluders=3).noise_multiplier == pairwise().seen_by(colluders(3)).noise_multiplier


def test_nodes_by_name_hold_their_own_secrets():
    one = pairwise()
    assert one.seen_by(coalition((4, 7, 9), target=0)).sigma == pytest.approx(one.seen_by(colluders(3)).sigma)


def test_the_price_of_a_run_is_that_of_the_effective_gaussian():
    events = [Event(draw=k, release=pairwise()) for k in range(50)]
    for q in (0, 1, 5, 19):
        sigma = pairwise().seen_by(colluders(q)).sigma
        expected = gdp_epsilon(math.sqrt(50) / sigma, 1e-5)
        assert proven(events, 1e-5, "add-remove", observer=colluders(q)).epsilon == pytest.approx(expected)
        assert curve(events, [50], 1e-5, "add-remove", observer=colluders(q)) == pytest.approx([expected])
        assert profile(events, [expected], 1e-5, "add-remove", observer=colluders(q)) == pytest.approx([1e-5])


@pytest.mark.parametrize(
    ("sampling", "more"), [("poisson", {}), ("balls-and-bins", {"pass_number": 0, "lot_number": 0})]
)
def test_more_colluders_never_cost_less_whatever_the_lots(sampling, more):
    one = pairwise(sampling=sampling, rate=0.1, **more)
    found = [proven([(one, 1)], 1e-5, "add-remove", observer=colluders(q)).epsilon for q in (0, 1, 10, 19)]
    assert found == sorted(found)
    plain = Gaussian(**{**COMMON, "sampling": sampling, "rate": 0.1, **more}, sigma=2.0)
    assert found[-1] == pytest.approx(proven([(plain, 1)], 1e-5, "add-remove").epsilon)


def test_without_its_graph_nothing_is_proven():
    one = pairwise(secrets="0" * 32)
    assert "not at hand" in one.unpriceable("add-remove")
    assert math.isinf(proven([one], 1e-5, "add-remove").epsilon)
    assert one.noise_multiplier == 0.0
    assert one.density is None
    with pytest.raises(ValueError, match="no dominating pair"):
        one.pair("add-remove")


def test_it_reads_back_from_a_ledger():
    event = Event(draw=3, release=pairwise(ratio=0.1 + 0.2))
    assert Event.from_json(event.to_json()) == event


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 0},
        {"colluders": 20},
        {"colluders": -1},
        {"ratio": -1.0},
        {"ratio": math.inf},
        {"secrets": ""},
    ],
)
def test_nonsense_is_refused(changes):
    with expect_refusal(next(iter(changes))):
        pairwise(**{"secrets": Secrets.complete(20).digest, **changes})


def test_masks_beyond_what_can_be_priced_are_refused():
    with expect_refusal(key="ratio", value="10000000.0", names="1e+06", remedy=True):
        pairwise(ratio=1e7)
