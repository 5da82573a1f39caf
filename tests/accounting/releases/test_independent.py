"""What releases say of themselves, against their densities and closed forms."""

import math

import pytest
from scipy.integrate import quad
from tests.support.releases import gaussian

from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, coalition
from gossamer.accounting.pairs import NoisePair
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import GeneralisedGaussian, Laplace, TruncatedGaussian, TruncatedLaplace

COMMON = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}
TRUNCATED = [
    (TruncatedGaussian, lambda z, s: math.exp(-((z / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))),
    (TruncatedLaplace, lambda z, s: math.exp(-abs(z) / s) / (2 * s)),
]


@pytest.mark.parametrize(("cls", "before"), TRUNCATED)
def test_what_truncation_cut_and_what_crosses_the_bound(cls, before):
    sigma, bound, dimensions = 3.0, 9.0, 4
    norm = cls(sigma=sigma, bound=bound, dimensions=dimensions, **COMMON).by_norm("replace-one")
    tail = 2 * quad(before, bound, math.inf, args=(sigma,))[0]
    assert norm.tail == pytest.approx(tail, rel=1e-6)
    # A change of norm 2 spread evenly: what it carries beyond the bound is no more than the crossing says.
    each = 2 / math.sqrt(dimensions)
    over = dimensions * quad(before, bound - each, bound, args=(sigma,))[0] / (1 - tail)
    assert over <= norm.crossing <= 4 * over


def test_a_truncated_gaussian_was_a_gaussian_of_the_same_pass():
    one = TruncatedGaussian(
        sigma=2.0, bound=9.0, dimensions=3, pass_number=5, **{**COMMON, "sampling": "one-pass", "rate": 0.2}
    )
    norm = one.by_norm("add-remove")
    assert norm.gaussian == gaussian(2.0, sampling="one-pass", rate=0.2, pass_number=5)
    assert norm.crossing == math.inf  # sampled: the other noise is not this one moved
    assert norm.rho == 0


def test_laplace_vectors_are_concentrated():
    norm = Laplace(sigma=4.0, dimensions=7, **COMMON).by_norm("replace-one")
    assert (norm.rho, norm.tail, norm.crossing, norm.gaussian) == (0.5 * (2 / 4) ** 2, 0.0, 0.0, None)


def test_numbers_and_shapes_without_a_norm_bound_have_none():
    assert Laplace(sigma=4.0, **COMMON).by_norm("add-remove") is None
    assert TruncatedGaussian(sigma=4.0, bound=9.0, **COMMON).by_norm("add-remove") is None
    assert GeneralisedGaussian(sigma=4.0, shape=3.0, dimensions=9, **COMMON).by_norm("add-remove") is None


def test_a_bound_within_the_change_says_nothing_of_crossing():
    wide = {**COMMON, "sensitivity": 1e6}
    assert TruncatedLaplace(sigma=1.0, bound=6e5, dimensions=2, **wide).by_norm("add-remove").crossing == math.inf


def test_pairs_by_sampling_and_relation():
    sampled = {**COMMON, "sampling": "poisson", "rate": 0.1}
    one = Laplace(sigma=4.0, **sampled)
    assert one.pair("replace-one") == NoisePair(Noise(4.0, 1.0), 2.0, 0.1, "symmetrised")
    several = Laplace(sigma=4.0, dimensions=3, **sampled)
    assert several.pair("replace-one") == NoisePair(Noise(4.0, 1.0), 2.0, 1.0, "one-sided")
    assert (one.pair_count, several.pair_count) == (1, 3)


@pytest.mark.parametrize("observer", [EVERYONE, FINAL_MODELS, coalition((1, 2), target=0)])
def test_independent_noise_costs_the_same_whoever_looks(observer):
    one = Laplace(sigma=4.0, **COMMON)
    assert one.seen_by(observer) == one
    assert one.unpriceable("add-remove") is None


def test_scaling_scales_the_whole_noise():
    one = TruncatedGaussian(sigma=2.0, bound=9.0, **COMMON).scaled(3.0)
    assert one.density == Noise(6.0 * math.sqrt(2), 2.0, 27.0)
    assert one.noise_multiplier == 6.0
