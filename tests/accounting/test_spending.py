"""What runs on the same records cost together: composed, never added up, and never cheaper for a later run's sake."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from tests.support.spendings import DELTA, full, spent

from gossamer.accounting import budget as module
from gossamer.accounting.budget import History, Releases, Spending, total
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Unnoised


def test_full_batches_of_several_runs_compose_in_closed_form() -> None:
    """4 + 9 + 4 · 3 Gaussians of μ = 1/10: one of μ² = 25/100."""
    runs = [spent("a"), spent("b", (full(10.0), 9)), spent("c", times=3)]
    found = total(runs)
    assert found.epsilon == pytest.approx(gdp_epsilon(math.sqrt(25 / 100), DELTA), rel=1e-9)
    assert (found.runs, found.delta, found.adjacency) == (5, DELTA, "add-remove")
    alone = [total([run]).epsilon for run in runs]
    assert max(alone) < found.epsilon < sum(alone)


def test_sampled_releases_compose_as_one_run_would() -> None:
    one = full(1.0, sampling="poisson", rate=0.01)
    assert total([spent("a", (one, 20)), spent("b", (one, 30))]).epsilon == pytest.approx(
        proven([(one, 50)], DELTA, "add-remove").epsilon, rel=1e-9
    )


def test_passes_of_different_runs_are_different_passes() -> None:
    """In each run a record is in one of three disjoint lots: two runs and one of two times cost four lots."""
    lots = tuple((full(10.0, sampling="one-pass", rate=0.3, pass_number=0), 1) for _ in range(3))
    history = (History((0,), lots),)
    found = total(
        [spent("a", histories=history), spent("b", histories=history), spent("c", histories=history, times=2)]
    )
    assert found.epsilon == pytest.approx(gdp_epsilon(math.sqrt(4 / 100), DELTA), rel=1e-9)


def test_secret_lots_of_different_runs_are_not_one_pass() -> None:
    """Lot 0 of one run and lot 1 of another: a record may be in both, though in no two lots of one run."""

    def lot(number: int) -> Releases:
        return ((full(1.0, sampling="balls-and-bins", rate=0.5, pass_number=0, lot_number=number), 1),)

    runs = [spent(str(k), histories=(History((0,), lot(k)),)) for k in (0, 1)]
    apart = [(replace(one, pass_number=k), 1) for k in (0, 1) for one, _ in lot(k)]
    assert total(runs).epsilon == proven(apart, DELTA, "add-remove").epsilon
    assert total(runs).epsilon > proven([*lot(0), *lot(1)], DELTA, "add-remove").epsilon


def test_the_strictest_delta_and_adjacency_of_all_runs_count() -> None:
    lax, strict = spent("a", delta=1e-3), spent("b", delta=1e-6, adjacency="replace-one")
    found = total([lax, strict])
    assert (found.delta, found.adjacency) == (1e-6, "replace-one")
    assert found.epsilon == pytest.approx(gdp_epsilon(math.sqrt(8 * 4 / 100), 1e-6), rel=1e-9)
    assert found.epsilon >= max(total([lax]).epsilon, total([strict]).epsilon)
    assert found.unit
    assert found.observer


def test_a_record_dealt_out_anew_may_meet_the_worst_node_every_time() -> None:
    runs = [spent("a", (full(10.0), 4), (full(5.0), 4)), spent("b", (full(5.0), 4), (full(10.0), 4))]
    assert total(runs).epsilon == pytest.approx(gdp_epsilon(math.sqrt(8 / 25), DELTA), rel=1e-9)
    # One that an owner column keeps on its node meets one of each, as long as the file is the same.
    kept = [replace(run, holder="site") for run in runs]
    assert total(kept).epsilon == pytest.approx(gdp_epsilon(math.sqrt(4 / 25 + 4 / 100), DELTA), rel=1e-9)
    edited = [kept[0], replace(kept[1], digest="other")]
    assert total(edited).epsilon == total(runs).epsilon
    assert total([kept[0], replace(kept[1], holder="ward")]).epsilon == total(runs).epsilon


def test_too_many_ways_to_hold_a_record_are_bounded_by_adding_up(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [spent(str(i), *((full(8.0 + i + j), 2) for j in range(3))) for i in range(5)]
    bound = total(runs).epsilon
    monkeypatch.setattr(module, "MOST_WAYS", 10**6)
    exact = total(runs).epsilon
    assert exact == pytest.approx(gdp_epsilon(math.sqrt(sum(2 / (8.0 + i) ** 2 for i in range(5))), DELTA), rel=1e-9)
    assert exact < bound < 5 * exact


def test_what_is_not_protected_is_said_and_the_rest_still_composed() -> None:
    plain = Unnoised(sensitivity=math.inf, sampling="full", rate=1.0, adjacency="add-remove")
    bad = spent("x", (plain, 3))
    found = total([spent("a"), bad])
    assert found.epsilon == math.inf
    assert found.because is not None
    assert found.because.startswith("x ")
    assert found.provable == total([spent("a")]).epsilon
    assert total([bad]).provable == 0.0


def test_runs_without_privacy_are_counted_and_cost_nothing() -> None:
    bad = spent("x", no_privacy="seeded noise: no privacy", times=3)
    assert total([spent("a"), bad]) == replace(total([spent("a")]), unprotected=3)
    assert (total([bad]).epsilon, total([bad]).runs) == (0.0, 0)


def test_nothing_released_is_nothing_spent() -> None:
    found = total([spent("a", histories=(History((0,), ()),))])
    assert (found.epsilon, found.runs, found.delta) == (0.0, 0, None)


def test_a_spending_reads_back_as_it_was_written() -> None:
    one = spent("a", (full(1 / 3, sampling="one-pass", rate=0.1, pass_number=2), 7), holder="site")
    unbounded = spent("b", (Unnoised(sensitivity=math.inf, sampling="full", rate=1.0, adjacency="replace-one"), 1))
    for spending in (one, unbounded):
        assert Spending.from_json(json.loads(json.dumps(spending.to_json(), allow_nan=False))) == spending
    for wrong in ({"delta": 0.0}, {"times": 0}):
        with pytest.raises(ValueError, match="its δ or its number"):
            Spending.from_json({**one.to_json(), **wrong})
    none = one.to_json()
    none["histories"][0]["releases"][0][0] = 0
    with pytest.raises(ValueError, match="at least once"):
        Spending.from_json(none)
