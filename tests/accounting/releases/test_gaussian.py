"""Which pair prices a Gaussian release."""

import math
from dataclasses import replace

import pytest
from tests.support.refusals import expect_refusal
from tests.support.releases import gaussian

from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, coalition
from gossamer.accounting.pairs import GaussianPair
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import OneSided


@pytest.mark.parametrize(
    ("sampling", "rate", "adjacency", "expected"),
    [
        ("full", 1.0, "add-remove", 0.25),
        ("full", 1.0, "replace-one", 0.5),
        ("one-pass", 0.1, "add-remove", 0.25),
        ("poisson", 1.0, "replace-one", 0.5),
        ("poisson", 0.1, "add-remove", GaussianPair(0.25, 0.1, "one-sided")),
        ("poisson", 0.1, "replace-one", GaussianPair(0.25, 0.1, "two-sided")),
        ("fixed-size", 0.1, "add-remove", GaussianPair(0.5, 0.1, "one-sided")),
        ("fixed-size", 0.1, "replace-one", GaussianPair(0.5, 0.1, "symmetrised")),
    ],
)
def test_the_pair_by_sampling_and_relation(sampling, rate, adjacency, expected):
    for observer in (EVERYONE, FINAL_MODELS, coalition((1, 2), target=0)):
        assert gaussian(4.0, sampling=sampling, rate=rate).seen_by(observer).pair(adjacency) == expected


@pytest.mark.parametrize(("sampling", "rate"), [("poisson", 0.1), ("fixed-size", 0.1), ("full", 1.0)])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_lot_clipped_as_a_whole_costs_what_one_of_fixed_size_does(sampling, rate, adjacency):
    """Whatever changes, the value stays in the ball: twice its radius, and no more if a record is replaced."""
    of_lot = replace(gaussian(4.0, sampling=sampling, rate=rate), clipped="lot")
    assert of_lot.pair(adjacency) == gaussian(4.0, sampling="fixed-size", rate=rate).pair(adjacency)


def test_only_lots_that_are_drawn_anew_are_clipped_as_a_whole():
    with expect_refusal(key="clipped", value="lot"):
        replace(gaussian(4.0, sampling="one-pass", rate=0.1), clipped="lot")
    with expect_refusal(key="clipped", value="node"):
        replace(gaussian(4.0), clipped="node")


def test_what_it_says_of_itself():
    one = gaussian(6.0, sensitivity=3.0)
    assert one.noise_multiplier == 2.0
    assert one.scaled(0.5) == gaussian(3.0, sensitivity=3.0)
    assert one.density == Noise(6.0 * math.sqrt(2), 2.0)
    assert one.by_norm("add-remove") is None
    assert one.pair_count == 1


@pytest.mark.parametrize(("adjacency", "expected"), [("add-remove", 0.25), ("replace-one", math.sqrt(2) / 4)])
def test_vectors_at_no_obtuse_angle_are_exchanged_for_less(adjacency, expected):
    of_all = OneSided(sigma=4.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    assert of_all.pair(adjacency) == pytest.approx(expected)
    sampled = replace(of_all, sampling="poisson", rate=0.1)
    assert sampled.pair(adjacency) == gaussian(4.0, sampling="poisson", rate=0.1).pair(adjacency)
    assert replace(of_all, clipped="lot").pair(adjacency) == 0.5
