"""The noises of DP-dKM: drawn as their events say, and priced no lower than they cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.mechanism import Book, noise_of

from gossamer.accounting import releases
from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.noise_comparison import density, noise_lines, truncated_share
from gossamer.accounting.profiles import Noise
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian, Release
from gossamer.accounting.vectors import concentrated_epsilon
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian, TruncatedGeneralised, TruncatedLaplace
from gossamer.methods.km.messages import NoisyMessages

FAMILIES: list[tuple[Any, float]] = [
    (Laplace(), math.inf), (TruncatedLaplace(), 2.0), (TruncatedGaussian(), 1.5),
    (TruncatedGeneralised(shape=3.0), 1.2), (TruncatedGeneralised(shape=1.5), math.inf),
]  # fmt: skip


def sample(kind: Any, end: float, sigma: float, count: int = 40_000) -> np.ndarray:
    out = torch.zeros(2, count // 2, dtype=torch.float64)
    scale, everyone = torch.full((2,), sigma, dtype=torch.float64), torch.ones(2, dtype=torch.bool)
    noise_of(sigma, 2, kind, end=end).add(
        Stream.seeded(5), [0, 1], 7, out, multiplier=scale, bound=torch.ones(2), active=everyone
    )
    return out.flatten().numpy()


def distance(values: np.ndarray, noise: Noise) -> float:
    """Kolmogorov–Smirnov distance to the exact distribution."""
    ordered = np.sort(values)
    exact = noise.between(np.full_like(ordered, -noise.reach()), ordered)
    ranks = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(exact - ranks[:-1]).max(), np.abs(exact - ranks[1:]).max()))


@pytest.mark.parametrize(("kind", "end"), FAMILIES)
def test_noise_is_drawn_from_the_density_its_release_names(kind: Any, end: float) -> None:
    """40,000 draws, fixed key: accepts the scale and rejects ⅔ and 3⁄2 of it, each at p = 1e-6 (KS 0.0134)."""
    sigma, limit = 0.7, 0.0134
    values, name, shape = sample(kind, end, sigma), kind.release_kind, kind.exponent
    assert distance(values, density(name, shape, sigma, end * sigma)) < limit
    for wrong in (2 / 3, 3 / 2):
        assert distance(values, density(name, shape, wrong * sigma, wrong * end * sigma)) > limit
    assert values.var() == pytest.approx(density(name, shape, sigma, end * sigma).variance, rel=0.05)
    if math.isfinite(end):
        assert np.abs(values).max() <= end * sigma * (1 + 2e-6)


def test_releases_carry_what_the_accountant_needs() -> None:
    part, common = (
        Participation("full", 1.0, "add-remove"),
        {"sampling": "full", "rate": 1.0, "adjacency": "add-remove"},
    )
    made = noise_of(2.0, 1, TruncatedGaussian(), end=4.0).release(0, 2.0, 1.0, 10, part, enforced=True)
    assert made == releases.TruncatedGaussian(sigma=2.0, bound=8.0, dimensions=10, sensitivity=1.0, **common)
    other = TruncatedGeneralised(shape=3.0).release(2.0, 1.0, 10, part, math.inf)
    assert other == releases.GeneralisedGaussian(
        sigma=2.0, shape=3.0, dimensions=10, sensitivity=1.0, **common
    )


class Exchange:
    bytes_sent = 0

    def __call__(self, t: int, x: torch.Tensor) -> torch.Tensor:
        return x


def test_noisy_messages_perturb_what_is_sent_and_log_every_message_and_the_bare_end() -> None:
    book = Book()
    messages = NoisyMessages(
        Exchange(), noise=noise_of(1.0, 2, Laplace()), scale=torch.tensor([0.5, 2.0]), stream=Stream.seeded(1),
        book=book, nodes=[0, 1], adjacency="replace-one",
    )  # fmt: skip
    x = torch.zeros(2, 20_000)
    sent = messages(0, x)
    assert float(x.abs().max()) == 0  # the node keeps its own iterate as it was
    np.testing.assert_allclose(sent.abs().mean(1), [0.5, 2.0], rtol=0.05)
    assert not torch.equal(sent, messages(1, x))
    messages.publish(20_000)
    events = [event for _, event in book.events]
    assert [event.release.kind for event in events] == ["laplace"] * 4 + ["none"] * 2
    assert all(math.isinf(event.release.sensitivity) for event in events)
    assert math.isinf(proven(events, 1e-3, "replace-one").epsilon)


def release(kind: str, sigma: float, dimensions: int, **constants: float) -> Release:
    return releases.release(
        kind, sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove",
        pass_number=None, dimensions=dimensions, **constants,
    )  # fmt: skip


def test_a_truncated_gaussian_vector_costs_the_gaussian_and_what_was_cut() -> None:
    """Never below the Gaussian it comes from, close to it where little is cut, and ∞ where too much is."""
    plain = gdp_epsilon(math.sqrt(50) / 30, 1e-3)
    figures = [
        proven([(release("truncated-gaussian", 30.0, 20, bound=30.0 * far), 50)], 1e-3, "add-remove").epsilon
        for far in (4.2, 4.6, 5.2, 8.0)
    ]
    assert plain <= figures[3] < figures[2] < figures[1] < figures[0] < 1.6 * plain
    assert figures[3] == pytest.approx(plain, rel=1e-6)
    narrow = proven([(release("truncated-gaussian", 30.0, 20, bound=60.0), 50)], 1e-3, "add-remove")
    assert math.isinf(narrow.epsilon)


def test_sampled_truncated_vectors_are_priced_by_the_mass_that_was_cut() -> None:
    sampled = replace(release("truncated-gaussian", 4.0, 5, bound=24.0), sampling="poisson", rate=0.1)
    plain = Gaussian(sigma=4.0, sensitivity=1.0, sampling="poisson", rate=0.1, adjacency="add-remove")
    upper, gaussian = (proven([(kind, 50)], 1e-3, "add-remove").epsilon for kind in (sampled, plain))
    assert gaussian * 0.99 < upper < 1.02 * gaussian


def test_the_bound_for_truncated_vectors_holds_against_the_exact_profile() -> None:
    """Two numbers of 30 releases, moved together or one of them alone: what is so must cost no more than proven."""
    from gossamer.accounting.profiles import composed_delta, gaussian, laplace

    cases = [
        ("truncated-gaussian", gaussian(9.0, 36.0), {"bound": 36.0}), ("laplace", laplace(9.0), {}),
        ("truncated-gaussian", gaussian(9.0, 48.0), {"bound": 48.0}),
        ("truncated-laplace", laplace(9.0, 110.0), {"bound": 110.0}),
    ]  # fmt: skip
    for mechanism, noise, parts in cases:
        upper = proven([(release(mechanism, 9.0, 2, **parts), 30)], 1e-3, "add-remove").epsilon
        assert math.isfinite(upper)
        for moves in ([math.sqrt(0.5)] * 60, [1.0] * 30):
            assert composed_delta(noise, moves, upper) <= 1e-3 * (1 + 1e-6)


def test_concentrated_epsilon_is_above_the_exact_gaussian_and_not_by_much() -> None:
    for mu in (0.05, 0.3, 1.0, 3.0):
        exact, found = gdp_epsilon(mu, 1e-4), concentrated_epsilon(mu**2 / 2, 1e-4)
        assert exact <= found < 1.2 * exact + 1e-3


def test_the_noise_table_has_the_papers_order_and_the_proofs_other_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "gossamer.accounting.noise_comparison.SHAPES", ()
    )  # what is priced number by number takes seconds
    lines = {
        line.noise: line
        for line in noise_lines(epsilon=0.5, delta=1e-3, releases=20, dimension=10, adjacency="add-remove")
    }
    order = ["truncated-gaussian", "truncated-laplace", "laplace", "gaussian"]
    claimed = [lines[name].claimed_std for name in order]
    assert claimed == sorted(claimed)  # what the paper plots
    assert lines["truncated-gaussian"].true_delta == pytest.approx(0.238, abs=1e-3)
    assert lines["gaussian"].true_delta < 1e-5
    assert lines["truncated-laplace"].true_epsilon == pytest.approx(0.5, rel=1e-6)
    # A record that moves one number has 20 chances of 1e-3 each to be shown.
    assert lines["truncated-gaussian"].identifying == pytest.approx(1 - (1 - 1e-3) ** 20, rel=1e-6)
    proven_std = {name: line.proven_std for name, line in lines.items()}
    assert min(proven_std, key=proven_std.get) == "gaussian"
    assert proven_std["gaussian"] == pytest.approx(math.sqrt(20) * 4.61, rel=0.01)
    assert proven_std["gaussian"] < proven_std["truncated-gaussian"] < 1.05 * proven_std["gaussian"]


def test_truncation_is_paid_by_a_twentieth_of_delta() -> None:
    cut = truncated_share(0.5, 1e-3, 800) * 800
    assert cut * (1 + math.exp(0.5)) == pytest.approx(1e-3 / 20)
