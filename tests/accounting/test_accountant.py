"""The accountant by itself, against closed forms and against Google's library."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from tests.support.refusals import expect_refusal

import gossamer.accounting
from gossamer.accounting import Accountant, gaussian_noise, laplace_noise, noise_for
from gossamer.accounting.observers import coalition
from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.releases import Unnoised

DELTA = 1e-5


def accountant(adjacency: str = "add-remove") -> Accountant:
    return Accountant(delta=DELTA, adjacency=adjacency)


@pytest.mark.parametrize(("adjacency", "moves"), [("add-remove", 1), ("replace-one", 2)])
def test_full_lots_are_the_gaussians_closed_form(adjacency: str, moves: int) -> None:
    found = accountant(adjacency).add(gaussian_noise(4.0), times=9).add(gaussian_noise(2.0, sensitivity=3.0)).epsilon()
    mu = moves * math.sqrt(9 / 16 + 1 / 4)
    assert found.epsilon == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-9)
    assert (found.delta, found.adjacency) == (DELTA, adjacency)


@pytest.mark.parametrize(
    ("multiplier", "rate", "times"),
    [
        (2.0, 0.1, 100),
        pytest.param(1.0, 0.01, 1000, marks=pytest.mark.slow),
        pytest.param(0.8, 0.004, 50, marks=pytest.mark.slow),
    ],
)
def test_sampled_gaussians_are_as_googles_library_has_them(multiplier: float, rate: float, times: int) -> None:
    found = accountant().add(gaussian_noise(multiplier, rate=rate), times=times).epsilon()
    theirs = pld.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=1e-4, use_connect_dots=True
    ).self_compose(times)
    assert found.epsilon == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=0.02)
    assert found.lower is not None
    assert found.lower <= theirs.get_epsilon_for_delta(DELTA) * (1 + 1e-6)


def test_laplace_is_as_googles_library_has_it() -> None:
    found = accountant().add(laplace_noise(5.0), times=4).epsilon()
    theirs = pld.from_laplace_mechanism(5.0, value_discretization_interval=1e-4).self_compose(4)
    assert found.epsilon == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=0.02)
    assert found.epsilon <= 4 / 5 * (1 + 1e-3)  # plain composition


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_calibrated_noise_costs_what_was_asked_for_and_hardly_less(adjacency: str, rate: float) -> None:
    sigma = noise_for(1.0, delta=DELTA, adjacency=adjacency, steps=100, rate=rate)
    found = accountant(adjacency).add(gaussian_noise(sigma, rate=rate), times=100).epsilon()
    assert 0.99 < found.epsilon <= 1.0
    if rate == 1:
        swap = 2 if adjacency == "replace-one" else 1
        assert sigma == pytest.approx(swap * 10 / gdp_mu(1.0, DELTA), rel=1e-6)


def test_a_mixture_is_calibrated_by_one_factor() -> None:
    before = accountant().add(gaussian_noise(2.0, rate=0.1), times=5).add(laplace_noise(3.0), times=2)
    after = before.calibrated(1.0)
    factors = [
        b.noise_multiplier / a.noise_multiplier for (a, _), (b, _) in zip(before.releases, after.releases, strict=True)
    ]
    assert factors[0] == pytest.approx(factors[1])
    assert 0.98 < after.epsilon().epsilon <= 1.0
    assert [times for _, times in after.releases] == [5, 2]


def test_no_figure_without_all_that_it_is_about() -> None:
    observed = Accountant(
        delta=DELTA, adjacency="replace-one", unit="one patient", observer=coalition((1, 2), target=0)
    ).add(gaussian_noise(3.0))
    shown = repr(observed.epsilon())
    for piece in ("ε ≤ 2.7", "δ = 1e-05", "replace-one", "unit: one patient", "nodes 1, 2 together"):
        assert piece in shown
        assert piece in repr(observed)
    with pytest.raises(TypeError, match="delta"):
        Accountant(adjacency="add-remove")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="adjacency"):
        Accountant(delta=DELTA)  # type: ignore[call-arg]


def test_what_cannot_be_priced_is_not_guessed() -> None:
    bare = Unnoised(sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    found = accountant().add(gaussian_noise(3.0)).add(bare)
    assert math.isinf(found.epsilon().epsilon)
    assert "not proven, a value was released without noise" in repr(found.epsilon())
    assert found.deltas([1.0]) == [1.0]
    with expect_refusal(key="epsilon", value="1"):
        found.calibrated(1.0)
    with expect_refusal(key="epsilon", value="1"):
        accountant().calibrated(1.0)
    assert accountant().epsilon().epsilon == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Accountant(delta=0.0, adjacency="add-remove"), "delta 0.0 0"),
        (lambda: Accountant(delta=DELTA, adjacency="other"), "adjacency other add-remove replace-one"),
        (lambda: accountant().add(1.0), "1.0 gaussian_noise"),
        (lambda: accountant().add(gaussian_noise(1.0), times=-1), "times -1 1"),
        (lambda: accountant().add(gaussian_noise(1.0), times=1.5), "times 1.5"),
        (lambda: gaussian_noise(1.0, rate=0.0), "rate 0.0 0"),
        (lambda: accountant().add(gaussian_noise(1.0)).calibrated(-1.0), "epsilon -1.0"),
    ],
)
def test_mistakes_are_one_sentence(wrong, says) -> None:  # type: ignore[no-untyped-def]
    with expect_refusal(names=says):
        wrong()


@pytest.mark.slow
def test_it_brings_no_torch_along() -> None:
    code = (
        "import sys; from gossamer.accounting import Accountant, gaussian_noise;"
        "Accountant(delta=1e-5, adjacency='add-remove').add(gaussian_noise(2.0)).epsilon();"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_the_folder_has_the_accountant_and_nothing_unknown() -> None:
    assert gossamer.accounting.Accountant is Accountant
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gossamer.accounting.nothing  # noqa: B018
