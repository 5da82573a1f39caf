"""Known pairs: what the papers print, and what can be proven for the same run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tests.support
from dp_accounting.pld import privacy_loss_distribution as pld
from tests.support.balls import one_pass
from tests.support.refusals import expect_refusal
from tests.support.releases import DELTA, composed_delta, dyn_d2p, gaussian

from gossamer.accounting import profiles
from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, coalition
from gossamer.accounting.profiles import gdp_delta, gdp_epsilon
from gossamer.accounting.proven import curve, profile, proven
from gossamer.accounting.releases import Event, Gaussian, collate, of_several_runs, release
from gossamer.methods import claims


def full(kind, sigma, **constants):
    return release(kind, sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove", **constants)


@pytest.mark.parametrize(("adjacency", "expected"), [("add-remove", 0.92), ("replace-one", 1.95)])
def test_rdp_one_is_not_one_under_replacement(adjacency, expected):
    sigma = claims.rdp_noise_multiplier(1.0, 256 / 6000, 2000, 1e-5)
    found = proven([(gaussian(sigma, rate=256 / 6000), 2000)], 1e-5, adjacency)
    assert found.epsilon == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("ratio", "claim", "expected"),
    [(1, 0.3, 0.67), (1, 1.0, 3.02), (1, 3.0, 5.76), (5, 0.3, 1.52), (5, 1.0, 3.91), (5, 3.0, 6.0)],
)
def test_dyn_d2p_costs_more_than_it_claims(ratio, claim, expected):
    found = proven(collate(dyn_d2p(claim, ratio)), DELTA, "add-remove")
    assert found.lower <= expected * 1.005
    assert found.epsilon == pytest.approx(expected, rel=0.015)
    assert found.epsilon - found.lower <= 0.0101 * found.epsilon


@pytest.mark.parametrize(
    ("ratio", "claim", "expected"), [(1, 0.3, 16.6), (1, 1.0, 40.7), (1, 3.0, 66.4), (5, 1.0, 33.7)]
)
def test_exactly_one_sample_is_not_poisson(ratio, claim, expected):
    found = proven(collate(dyn_d2p(claim, ratio, "fixed-size")), DELTA, "replace-one")
    assert found.epsilon == pytest.approx(expected, rel=0.01)


def test_dinno_with_two_inner_steps_counts_twice():
    one = gaussian(5.0, rate=0.02)
    once, twice = (proven([(one, k)], 1e-5, "add-remove").epsilon for k in (500, 1000))
    events = [Event(k, one) for k in range(1000)]
    assert proven(events, 1e-5, "add-remove").epsilon == twice > once


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_full_batches_are_exact(adjacency):
    swap = 2 if adjacency == "replace-one" else 1
    found = proven([(gaussian(20.0, sensitivity=2.0, sampling="full", rate=1.0), 16)], 1e-5, adjacency)
    assert found.epsilon == found.lower == pytest.approx(gdp_epsilon(swap * 0.4, 1e-5))
    same = proven([(gaussian(20.0, sensitivity=2.0, rate=1.0), 16)], 1e-5, adjacency)
    assert same.epsilon == found.epsilon


def test_a_pass_costs_its_worst_lot():
    lots = [gaussian(10.0 - k, sampling="one-pass", rate=1.0) for k in range(5)]
    found = proven(lots, 1e-5, "add-remove")
    assert found.epsilon == pytest.approx(gdp_epsilon(1 / 6, 1e-5))
    again = [gaussian(6.0, sampling="one-pass", rate=1.0, pass_number=1)]
    both = proven(lots + again, 1e-5, "add-remove")
    assert both.epsilon == pytest.approx(gdp_epsilon(math.sqrt(2) / 6, 1e-5))
    # ten models trained on the same lots are one release of ten times the squared sensitivity
    sigma = claims.classical_gaussian_sigma(1.0, 1e-10, 1.0)
    joint = gaussian(sigma, sensitivity=math.sqrt(10), sampling="one-pass", rate=1.0)
    assert proven([joint], 1e-10, "add-remove").epsilon > 2


def test_a_pass_with_different_mechanisms_takes_the_worse():
    weak = replace(full("laplace", 1.0), sampling="one-pass")
    strong = gaussian(50.0, sampling="one-pass", rate=1.0)
    alone = proven([weak], 1e-5, "add-remove").epsilon
    assert proven([weak, strong], 1e-5, "add-remove").epsilon == pytest.approx(alone, rel=1e-6)
    assert alone == pytest.approx(1.0, rel=0.01)


def test_fixed_size_is_dearer_than_poisson():
    for adjacency in ("add-remove", "replace-one"):
        poisson, fixed = (
            proven([(gaussian(2.0, sampling=s, rate=0.02), 300)], 1e-5, adjacency) for s in ("poisson", "fixed-size")
        )
        assert fixed.lower > poisson.epsilon


def test_sensitivity_other_than_the_clip():
    plain = proven([(gaussian(2.0), 100)], 1e-5, "add-remove")
    scaled = proven([(gaussian(6.0, sensitivity=3.0), 100)], 1e-5, "add-remove")
    assert scaled.epsilon == plain.epsilon


def test_mixtures_cost_more_than_their_parts_and_less_than_the_sum():
    parts = [
        (gaussian(1.5, rate=0.02), 200),
        (gaussian(30.0, sampling="full", rate=1.0), 4),
        (full("laplace", 40.0), 10),
        (gaussian(9.0, sampling="fixed-size", rate=0.05), 20),
    ]
    alone = [proven([part], 1e-5, "add-remove") for part in parts]
    together = proven(parts, 1e-5, "add-remove")
    assert max(p.lower for p in alone) <= together.epsilon <= sum(p.epsilon for p in alone)


def test_laplace_agrees_with_the_library():
    one = full("laplace", 20.0)
    theirs = pld.from_laplace_mechanism(20.0, value_discretization_interval=1e-4).self_compose(100)
    found = proven([(one, 100)], 1e-6, "add-remove")
    assert found.lower <= theirs.get_epsilon_for_delta(1e-6) <= found.epsilon * 1.001
    doubled = proven([(one, 1)], 1e-6, "replace-one")
    assert doubled.epsilon == pytest.approx(0.1, rel=0.01)


def test_truncated_noise_is_priced_with_its_identifying_mass():
    scale, bound = claims.km_noise("truncated-laplace", 0.5, 1e-3, 1.0)
    one = full("truncated-laplace", scale, bound=bound)
    once = proven([one], 1.05e-3, "add-remove")
    assert once.epsilon == pytest.approx(0.5, rel=0.02)
    many = proven([(one, 500)], 1e-3, "add-remove")
    assert many.epsilon == math.inf
    assert "identify a record outright" in many.because
    vector = full("truncated-laplace", scale, bound=bound, dimensions=3)
    # By the norm a vector costs less than three numbers that all move by the whole sensitivity, and more than one.
    alone, together = (proven([(one, n)], 0.01, "add-remove").epsilon for n in (1, 3))
    assert alone < proven([vector], 0.01, "add-remove").epsilon < together


@pytest.mark.parametrize(
    ("release", "word"),
    [
        (full("own-norm-gaussian", 1.0), "own gradient norm"),
        (full("raw-decision", 0.0), "raw losses"),
        (full("none", 0.0), "without noise"),
        (gaussian(0.0), "without noise"),
        (gaussian(1.0, sensitivity=math.inf), "nothing bounds"),
        (full("generalised-gaussian", 1.0, shape=0.5), "log-concave"),
        (full("truncated-laplace", 1.0, bound=0.4), "narrower"),
    ],
)
def test_what_cannot_be_priced_is_not_guessed(release, word):
    found = proven([(gaussian(1.0), 10), (release, 1)], 1e-5, "add-remove")
    assert found.epsilon == math.inf
    assert found.lower is None
    assert word in found.because


def test_nothing_released_costs_nothing():
    assert proven([], 1e-5, "add-remove").epsilon == 0.0


def test_wrong_questions_are_refused():
    with expect_refusal(key="delta", value="0"):
        proven([gaussian(1.0)], 0, "add-remove")
    with expect_refusal(key="adjacency", value="zero-out"):
        proven([gaussian(1.0)], 1e-5, "zero-out")


def test_the_curve_ends_at_the_total_and_never_falls():
    releases = dyn_d2p(1.0, 5)
    marks = [0, 1, 700, 1400, 2100, 2800, 3500]
    found = curve(releases, marks, DELTA, "add-remove")
    assert found[0] == 0.0
    assert found == sorted(found)
    assert found[-1] == pytest.approx(proven(collate(releases), DELTA, "add-remove").epsilon, rel=1e-6)


def test_the_curve_of_mixed_and_broken_runs():
    whole, sampled = gaussian(8.0, sampling="full", rate=1.0), gaussian(1.0, rate=0.05)
    mixed = [whole, sampled, sampled, whole, gaussian(9.0, sampling="one-pass", rate=1.0)] * 5
    found = curve(mixed, [5, 13, 25], 1e-5, "replace-one")
    for k, figure in zip([5, 13, 25], found, strict=True):
        alone = proven(collate(mixed[:k]), 1e-5, "replace-one")
        assert alone.lower <= figure <= alone.epsilon * 1.03
    exact = curve([whole] * 9, [1, 4, 9], 1e-5, "add-remove")
    assert exact == pytest.approx([gdp_epsilon(mu / 8, 1e-5) for mu in (1, 2, 3)])
    broken = curve([sampled, gaussian(0.0), sampled], [1, 2, 3], 1e-5, "add-remove")
    assert math.isfinite(broken[0])
    assert broken[1:] == [math.inf, math.inf]


def _one_pass(kind: str, step: int, turn: int) -> Event:
    further = {"bound": 80.0, "dimensions": 10} if kind == "truncated-gaussian" else {}
    one = full(kind, 10.0, **further)
    return Event(step, replace(one, sampling="one-pass", rate=0.5, pass_number=turn))


@pytest.mark.parametrize("passes", [1, 10, 40])
def test_passes_of_a_truncated_noise_compose_as_those_of_the_gaussian(passes):
    figures = [
        proven([_one_pass(kind, k, k // 2) for k in range(2 * passes)], 1e-5, "add-remove").epsilon
        for kind in ("gaussian", "truncated-gaussian")
    ]
    assert figures[1] >= figures[0] * (1 - 1e-9)
    assert figures[1] == pytest.approx(figures[0], rel=0.02)


def test_passes_of_different_runs_hold_the_same_records():
    run = [_one_pass("gaussian", k, k // 2) for k in range(20)]
    longer = [_one_pass("gaussian", k, k // 2) for k in range(60)]
    together = proven(of_several_runs([run] * 3), 1e-5, "add-remove").epsilon
    assert together == pytest.approx(proven(longer, 1e-5, "add-remove").epsilon, rel=1e-9)
    assert together > 1.5 * proven(run, 1e-5, "add-remove").epsilon


def _recorded():
    return json.loads((Path(tests.support.__file__).parent / "prices.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", _recorded())
def test_prices_are_those_recorded_before_releases_were_classes(case):
    """Every kind, sampling and relation, alone and together."""
    releases = [
        (Event.from_json({"draw": 0, **{k: v for k, v in one.items() if k != "count"}}).release, one["count"])
        for one in case["releases"]
    ]
    found = proven(releases, case["delta"], case["adjacency"], tolerance=0.05)
    # recorded at a tolerance of 5%, by a composition that did not tilt
    assert found.epsilon == pytest.approx(float(case["epsilon"]), rel=0.05)
    assert found.lower is None or found.lower <= float(case["epsilon"]) * (1 + 1e-9)
    assert found.because == case["because"]


def test_a_pass_is_as_dear_as_its_dearest_lot_whatever_the_dimensions():
    """Ten numbers with a little more noise each cost more than one number, so both lots are looked at."""
    number = replace(full("laplace", 4.0), sampling="one-pass")
    vector = replace(full("laplace", 4.4, dimensions=10), sampling="one-pass")
    sampled = gaussian(5.0, rate=0.5)
    one, ten, both = (
        proven([*lots, sampled], 1e-5, "add-remove").epsilon for lots in ([number], [vector], [number, vector])
    )
    assert both == pytest.approx(ten)
    assert ten > 1.5 * one


class _Masked(Gaussian):
    """As noise that neighbours could take off again: it counts only for who holds no node."""

    __slots__ = ()

    def seen_by(self, observer=EVERYONE):
        if observer.members:
            return replace(self, sigma=0.0)
        return self if observer.sees_all else replace(self, sigma=2 * self.sigma)


def test_the_price_may_depend_on_who_looks():
    one = _Masked(sigma=4.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    for observer, mu in ((EVERYONE, 1 / 4), (FINAL_MODELS, 1 / 8)):
        expected = gdp_epsilon(2 * mu, 1e-5)
        assert proven([one] * 4, 1e-5, "add-remove", observer=observer).epsilon == pytest.approx(expected)
        assert curve([one] * 4, [4], 1e-5, "add-remove", observer=observer) == pytest.approx([expected])
    found = proven([one], 1e-5, "add-remove", observer=coalition((1, 2), target=0))
    assert math.isinf(found.epsilon)
    assert found.because == "a value was released without noise"


def test_a_truncated_gaussian_vector_costs_the_gaussian_and_what_was_cut() -> None:
    """Never below the Gaussian it comes from, close to it where little is cut, and ∞ where too much is."""
    plain = gdp_epsilon(math.sqrt(50) / 30, 1e-3)
    figures = [
        proven([(full("truncated-gaussian", 30.0, dimensions=20, bound=30.0 * far), 50)], 1e-3, "add-remove").epsilon
        for far in (4.2, 4.6, 5.2, 8.0)
    ]
    assert plain <= figures[3] < figures[2] < figures[1] < figures[0] < 1.6 * plain
    assert figures[3] == pytest.approx(plain, rel=1e-6)
    narrow = proven([(full("truncated-gaussian", 30.0, dimensions=20, bound=60.0), 50)], 1e-3, "add-remove")
    assert math.isinf(narrow.epsilon)


def test_sampled_truncated_vectors_are_priced_by_the_mass_that_was_cut() -> None:
    sampled = replace(full("truncated-gaussian", 4.0, dimensions=5, bound=24.0), sampling="poisson", rate=0.1)
    plain = gaussian(4.0, rate=0.1)
    upper, whole = (proven([(kind, 50)], 1e-3, "add-remove").epsilon for kind in (sampled, plain))
    assert whole * 0.99 < upper < 1.02 * whole


def test_the_bound_for_truncated_vectors_holds_against_the_exact_profile() -> None:
    """Two numbers of 30 releases, moved together or one of them alone: what is so must cost no more than proven."""
    cases = [
        ("truncated-gaussian", profiles.gaussian(9.0, 36.0), {"bound": 36.0}), ("laplace", profiles.laplace(9.0), {}),
        ("truncated-gaussian", profiles.gaussian(9.0, 48.0), {"bound": 48.0}),
        ("truncated-laplace", profiles.laplace(9.0, 110.0), {"bound": 110.0}),
    ]  # fmt: skip
    for mechanism, noise, parts in cases:
        upper = proven([(full(mechanism, 9.0, dimensions=2, **parts), 30)], 1e-3, "add-remove").epsilon
        assert math.isfinite(upper)
        for moves in ([math.sqrt(0.5)] * 60, [1.0] * 30):
            assert composed_delta(noise, moves, upper) <= 1e-3 * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_profile_of_full_batches_is_exact(adjacency):
    swap = 2 if adjacency == "replace-one" else 1
    at = [0.0, 0.5, 2.0]
    found = profile([(gaussian(10.0, sampling="full", rate=1.0), 16)], at, 1e-5, adjacency)
    assert found == pytest.approx([gdp_delta(swap * 0.4, epsilon) for epsilon in at])


def test_the_profile_of_samples_is_the_librarys_from_above():
    """Both directions, the larger of the two."""
    one = pld.from_gaussian_mechanism(1.0, sampling_prob=0.1, value_discretization_interval=1e-4)
    whole, at = one.self_compose(20), [0.0, 0.3, 1.0, 2.0]
    exact = [whole.get_delta_for_epsilon(epsilon) for epsilon in at]
    found = profile([(gaussian(1.0, rate=0.1), 20)], at, 1e-4, "add-remove")
    for ours, theirs in zip(found, exact, strict=True):
        assert theirs * 0.999 <= ours <= theirs * 1.02


@pytest.mark.parametrize(
    "releases",
    [
        [(gaussian(3.0, sampling="full", rate=1.0), 10)],
        [(gaussian(1.0, rate=0.05), 30), (gaussian(8.0, sampling="full", rate=1.0), 2)],
        [(full("laplace", 9.0, dimensions=2), 30)],
        [(full("truncated-gaussian", 30.0, dimensions=20, bound=150.0), 50)],
        [(full("truncated-gaussian", 9.0, bound=48.0), 10)],
        [
            gaussian(2.0, sampling="one-pass", pass_number=0),
            gaussian(4.0, sampling="one-pass", pass_number=1),
        ],
    ],
)
def test_the_profile_passes_through_the_proven_point_and_falls(releases):
    delta = 1e-3
    figure = proven(releases, delta, "add-remove").epsilon
    at = [0.0, figure / 3, figure, 1.5 * figure]
    found = profile(releases, at, delta, "add-remove")
    assert found[2] == pytest.approx(delta, rel=0.05)
    assert found == sorted(found, reverse=True)
    assert all(0 <= d <= 1 for d in found)


def test_the_profile_of_truncated_vectors_holds_against_the_exact_one():
    noise, at = profiles.gaussian(9.0, 48.0), [0.0, 0.5, 1.5]
    found = profile([(full("truncated-gaussian", 9.0, dimensions=2, bound=48.0), 30)], at, 1e-3, "add-remove")
    for upper, epsilon in zip(found, at, strict=True):
        for moves in ([math.sqrt(0.5)] * 60, [1.0] * 30):
            # The exact one is itself an upper bound, by a grid of a thousandth.
            assert composed_delta(noise, moves, epsilon) <= upper * 1.01


def test_what_cannot_be_priced_has_no_profile():
    assert profile([gaussian(0.0)], [0.0, 5.0], 1e-5, "add-remove") == [1.0, 1.0]
    assert profile([], [0.0, 5.0], 1e-5, "add-remove") == [0.0, 0.0]


def test_lots_that_records_draw_by_themselves_are_amplified():
    """60 lots at σ = C, δ = 10⁻⁴: 0.62; the same lots dealt by a permutation cost a full batch, 3.80."""
    found = proven(one_pass(60), 1e-4, "add-remove")
    assert 0.6150 < found.lower <= found.epsilon < 0.6180
    dealt = [replace(lot, sampling="one-pass", lot_number=None) for lot in one_pass(60)]
    assert proven(dealt, 1e-4, "add-remove").epsilon == gdp_epsilon(1.0, 1e-4) > 3.5
    begun = proven(one_pass(60, released=20), 1e-4, "add-remove")
    assert begun.epsilon < 0.75 * found.epsilon
    thrice = proven([lot for number in range(3) for lot in one_pass(60, number=number)], 1e-4, "add-remove")
    assert 1.3 * found.epsilon < thrice.lower <= thrice.epsilon < 3 * found.epsilon


def test_passes_are_never_dearer_than_a_full_batch_each():
    for lots, sigma in ((2, 0.12), (3, 0.2), (2, 0.5), (5, 20.0)):
        for adjacency, swap in (("add-remove", 1), ("replace-one", 2)):
            found = proven(one_pass(lots, sigma), 1e-6, adjacency)
            assert found.epsilon <= gdp_epsilon(swap / sigma, 1e-6)


@pytest.mark.parametrize("delta", [1e-13, 1e-200])
def test_where_the_numbers_end_a_pass_costs_a_full_batch(delta):
    assert proven(one_pass(60), delta, "add-remove").epsilon == gdp_epsilon(1.0, delta)


def test_a_ledger_that_names_a_lot_twice_pays_for_both():
    lots = one_pass(60)
    twice = proven([*lots[:-1], lots[0]], 1e-4, "add-remove")
    assert twice.epsilon == pytest.approx(gdp_epsilon(math.sqrt(60), 1e-4))
    nameless = proven([replace(lot, lot_number=None) for lot in lots], 1e-4, "add-remove")
    assert nameless.epsilon == twice.epsilon


def test_other_noise_in_lots_that_records_draw_costs_its_worst_lot():
    drawn = [
        replace(full("laplace", 4.0), sampling="balls-and-bins", rate=0.2, pass_number=0, lot_number=k)
        for k in range(5)
    ]
    dealt = [replace(lot, sampling="one-pass", lot_number=None) for lot in drawn]
    assert proven(drawn, 1e-5, "add-remove").epsilon == proven(dealt, 1e-5, "add-remove").epsilon


def test_truncated_noise_gets_no_secret_lots():
    lots = [
        release(
            "truncated-gaussian", sigma=2.0, bound=18.0, dimensions=10, sensitivity=1.0, rate=0.1,
            adjacency="add-remove", sampling="balls-and-bins", pass_number=0, lot_number=k,
        )
        for k in range(10)
    ]  # fmt: skip
    dealt = [replace(lot, sampling="one-pass", lot_number=None) for lot in lots]
    assert proven(lots, 1e-5, "add-remove").epsilon == proven(dealt, 1e-5, "add-remove").epsilon


def test_a_replaced_record_is_one_removed_and_one_added():
    """Above what the worst pair that we know of costs, 1/T Σ N(e_t) against 1/T Σ N(−e_t), by draws of it."""
    found = proven(one_pass(20, adjacency="replace-one"), 1e-3, "replace-one")
    assert found.epsilon < gdp_epsilon(2.0, 1e-3) / 2
    alone = proven(one_pass(20), 1e-3, "add-remove").epsilon
    assert found.epsilon > 2 * alone
    rng = np.random.default_rng(0)
    z = rng.standard_normal((40_000, 20))
    z[np.arange(40_000), rng.integers(0, 20, 40_000)] += 1
    losses = np.logaddexp.reduce(z, axis=1) - np.logaddexp.reduce(-z, axis=1)
    shown = np.maximum(-np.expm1(found.epsilon - losses), 0)
    assert shown.mean() + 4.9 * shown.std() / 200 < 1e-3


def test_the_curve_over_secret_lots_rises_to_the_whole(monkeypatch):
    lots = [lot for number in (0, 1) for lot in one_pass(4, 2.0, number=number)]
    monkeypatch.setattr("gossamer.accounting.proven.SOME", 4)
    found = curve(lots, list(range(9)), 1e-5, "add-remove")
    assert found == sorted(found)
    assert found[0] == 0
    assert found[8] == proven(lots, 1e-5, "add-remove").epsilon
    for k in (3, 4):
        assert found[k] >= proven(lots[:k], 1e-5, "add-remove").epsilon


def test_secret_lots_compose_with_other_releases():
    """A pass, Poisson draws and a full batch: dearer than each, cheaper than the full price of the pass."""
    others = [gaussian(2.0, rate=0.05)] * 20 + [gaussian(3.0, sampling="full", rate=1.0)]
    both = proven([*one_pass(60), *others], 1e-5, "add-remove")
    dealt = [replace(lot, sampling="one-pass", lot_number=None) for lot in one_pass(60)]
    assert proven(others, 1e-5, "add-remove").epsilon < both.lower <= both.epsilon
    assert both.epsilon < proven([*dealt, *others], 1e-5, "add-remove").lower
