"""What all releases have in common, on every registered kind."""

import math
from dataclasses import FrozenInstanceError, fields

import pytest
from tests.support.refusals import expect_refusal

from gossamer.accounting.releases import ADJACENCIES, KINDS, SAMPLINGS, Noised, release
from gossamer.accounting.secrets import Secrets

CONSTANTS = {
    "bound": 50.0, "shape": 2.0, "dimensions": 1, "nodes": 5, "colluders": 1, "ratio": 10.0,
    "secrets": Secrets.complete(5).digest,
}  # fmt: skip


def make(kind, **changes):
    common = {"sigma": 4.0, "sensitivity": 0.5, "sampling": "poisson", "rate": 0.1, "adjacency": "add-remove"}
    own = {field.name: CONSTANTS[field.name] for field in fields(KINDS[kind]) if field.name in CONSTANTS}
    return release(kind, **{**common, **own, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_frozen_named_and_priced_or_says_why_not(kind):
    one = make(kind)
    assert type(one) is KINDS[one.kind]
    assert hash(one) == hash(make(kind))
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        one.rate = 0.5
    for adjacency in ADJACENCIES:
        reason = one.unpriceable(adjacency)
        if reason is None:
            assert one.pair(adjacency) is not None
        else:
            assert len(reason.split()) > 3
            with pytest.raises(ValueError, match="no dominating pair"):
                one.pair(adjacency)


@pytest.mark.parametrize("kind", [kind for kind, cls in KINDS.items() if issubclass(cls, Noised)])
def test_noise_is_scaled_and_measured_in_units_of_the_sensitivity(kind):
    one = make(kind)
    assert one.noise_multiplier == 8.0 or kind == "pairwise"  # whose noise the others' add to
    twice = one.scaled(2.0)
    assert (twice.sigma, twice.noise_multiplier) == (8.0, 2 * one.noise_multiplier)
    assert make(kind, sigma=0.0).unpriceable("add-remove") is not None
    assert make(kind, sensitivity=math.inf).unpriceable("add-remove") is not None


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_how_far_a_sum_moves_and_what_sampling_hides(sampling):
    one = make("gaussian", sampling=sampling)
    lot_is_full = sampling == "fixed-size"  # whoever enters, another leaves
    assert one.shift("add-remove") == (1.0 if lot_is_full else 0.5)
    assert one.shift("replace-one") == 1.0
    assert one.amplifying_rate == (0.1 if sampling in ("poisson", "fixed-size") else 1.0)


def test_a_wrong_word_is_shown_with_the_right_ones():
    with expect_refusal("sampling", "some", "fixed-size full one-pass balls-and-bins"):
        make("gaussian", sampling="some")


def test_lots_of_a_family_differ_in_the_amount_of_noise_only():
    assert make("gaussian").family == make("gaussian", sigma=9.0, sensitivity=3.0).family
    assert make("laplace").family == make("laplace", sigma=9.0).family
    assert make("laplace").family != make("laplace", dimensions=2).family
    for kind in ("truncated-laplace", "none"):  # no order among them is known
        assert make(kind).family == make(kind)
