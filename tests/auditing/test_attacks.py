"""The auditor catches mechanisms that are broken and stays silent on those that are not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.support.audits import figure, on_axes, outlined, verdict_of
from tests.support.mechanism import thinner
from tests.support.observed import N
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import EVERYONE
from gossamer.auditing import canaries
from gossamer.auditing.attacks import LENGTH_ROWS, Axes, Lengths, attack_of, observer_of
from gossamer.auditing.trainings import NoLedger
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import COINS, COUNT, NOISE, SAMPLING
from gossamer.mechanism.sampling import Lot, PoissonSampler
from gossamer.topology.exact import window_topology
from gossamer.topology.kinds import build as build_topology
from gossamer.training.assemble import Parts

FULL = {"privacy.sampling": {"kind": "full"}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm__kind": "dp-dsgd", "topology__kind": "ring"},
        {"algorithm__kind": "dp-dsgt", "topology__kind": "ring"},
        {"privacy__adjacency": "replace-one"},
    ],
)
def test_a_sound_run_is_not_accused_and_its_figure_is_nearly_reached(changes: dict[str, Any]) -> None:
    o = outlined(**changes, **{key.replace(".", "__"): value for key, value in FULL.items()})
    verdict = verdict_of(attack_of(o, "all", None), o)
    proven = o.privacy.figures()["epsilon_proven"]
    assert verdict.violated == ()
    assert verdict.epsilon <= proven
    assert 0.7 * proven <= figure(verdict, "Gaussian DP") <= 1.1 * proven


@pytest.mark.slow
@pytest.mark.parametrize("view", ["neighbour", "coalition:1,2", "final"])
def test_who_sees_less_shows_less(view: str) -> None:
    o = outlined(privacy__sampling={"kind": "full"}, privacy__epsilon=8.0, privacy__delta=1e-4)
    some = verdict_of(attack_of(o, view, None), o, runs=16)
    everyone = verdict_of(attack_of(o, "all", None), o, runs=2)
    assert some.violated == ()
    assert figure(some, "Gaussian DP") < figure(everyone, "Gaussian DP")


def test_noise_of_half_the_size_is_caught() -> None:
    o = outlined(privacy__sampling={"kind": "full"})
    parts = on_axes(o)
    halved = thinner(parts, 2)
    verdict = verdict_of(Axes(halved, EVERYONE), o)
    assert verdict.violated == ("proven",)


@dataclass(frozen=True)
class FiveDraws:
    """Five lots in place of one: gradients accumulated over five draws, clipped each, under the noise of one."""

    one: PoissonSampler
    kind: ClassVar[str] = "poisson"
    varies: ClassVar[bool] = True
    disjoint: ClassVar[bool] = False

    def lot_numbers(self, step: int) -> None:
        return None

    def passes(self, step: int) -> None:
        return None

    @property
    def rates(self) -> Any:
        return self.one.rates

    def draw(self, stream: Stream, nodes: Any, sizes: Any, step: int) -> Lot:
        lots = [self.one.draw(stream, nodes, sizes, 1000 * (step + 1) + j) for j in range(5)]
        return Lot(torch.cat([lot.rows for lot in lots], 1), torch.cat([lot.mask for lot in lots], 1))


def broken(parts: Parts, make_reader: Any) -> Parts:
    """Parts whose reader is made of the sound ones by `make_reader`."""

    class Broken(Parts):
        def reader(self, book: Any, stream: Any = None, written: Any = None) -> Any:
            return make_reader(Parts(**vars(self)), book, stream)

    return Broken(**vars(parts))


def accumulating(parts: Parts, book: NoLedger, stream: Stream) -> Any:
    assert isinstance(parts.sampler, PoissonSampler)
    return replace(parts, sampler=FiveDraws(parts.sampler)).reader(book, stream, written=[0])


@pytest.mark.slow
def test_five_accumulated_draws_under_the_noise_of_one_are_caught() -> None:
    o = outlined(privacy__sampling={"kind": "poisson", "rate": 0.25})
    parts = on_axes(o)
    assert verdict_of(Axes(parts, EVERYONE), o).violated == ()
    assert verdict_of(Axes(broken(parts, accumulating), EVERYONE), o).violated == ("proven",)


class RealisedSize:
    """Divides by the lot as it fell, not by the public expected size: the length of a message tells how many were in."""

    def __init__(self, parts: Parts, book: NoLedger, stream: Stream):
        self._sampler, self._lot = parts.sampler, None
        self.kind, self.rates, self.passes = parts.sampler.kind, parts.sampler.rates, parts.sampler.passes
        self.lot_numbers, self.varies = parts.sampler.lot_numbers, parts.sampler.varies
        self._grad = replace(parts, sampler=self).reader(book, stream, written=[0])
        self._divisors = torch.tensor([node.lot / node.weight for node in parts.plan.privacy.nodes])[:, None]

    def draw(self, stream: Stream, nodes: Any, sizes: Any, step: int) -> Lot:
        self._lot = self._sampler.draw(stream, nodes, sizes, step)
        return self._lot

    def __call__(self, points: torch.Tensor) -> torch.Tensor:
        value = self._grad(points)
        assert self._lot is not None
        return value * self._divisors / self._lot.mask.sum(1, keepdim=True).clamp_min(1)


def test_dividing_by_the_realised_size_is_caught() -> None:
    o = outlined(privacy__sampling={"kind": "full"})
    parts = on_axes(o, LENGTH_ROWS)
    assert verdict_of(Lengths(parts), o, runs=600).violated == ()
    assert verdict_of(Lengths(broken(parts, RealisedSize)), o, runs=600).violated == ("proven",)


@pytest.mark.slow
def test_noise_scaled_by_the_record_itself_is_caught() -> None:
    """AdaD2P in paper mode at a claimed ε of 1: an assumption-free bound of at least 3."""
    o = outlined(mode="paper", algorithm__kind="adad2p", algorithm__lr=0.03, rounds=300, privacy__delta=1e-5)
    attack = attack_of(o, "all", None)
    assert isinstance(attack, Lengths)
    verdict = verdict_of(attack, o)
    assert o.privacy.figures()["epsilon_claimed"] == pytest.approx(1.0)
    assert verdict.violated == ("claimed",)
    assert verdict.epsilon >= 3
    assert verdict.bounds[0].name == "threshold"


KM_TRIALS = 100  # trainings of 400 coins


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "family", "violated"),
    [
        ("paper", "truncated-gaussian", ("claimed",)),
        ("sound", "truncated-gaussian", ()),
        ("paper", "gaussian", ()),
        ("paper", "laplace", ()),
        ("paper", "truncated-laplace", ()),
    ],
)
def test_theorem_6_of_dp_dkm_is_refuted_by_a_record_in_its_messages(
    mode: str, family: str, violated: tuple[str, ...]
) -> None:
    """One record a node, its residual at the paper's bound B. It moves a message by half of Theorem 1's Δ_K, so only
    the noise can be at fault: the others of the paper, at the same claim and Δ_K, stand."""
    o = outlined("dp-dkm/truncated", mode=mode, privacy__noise__family={"kind": family})
    attack = attack_of(o, "messages", None)
    assert isinstance(attack, Axes)
    assert attack.independent
    verdict = verdict_of(attack, o, runs=KM_TRIALS)
    assert verdict.violated == violated
    assert verdict.bounds[0].name == "threshold"
    figures = o.privacy.figures()
    if mode == "paper":
        assert figures["epsilon_claimed"] == pytest.approx(0.5)
        moved = 2 * 1.0 * 0.01  # 2 B α
        assert moved < 0.5 * o.privacy.claim.sensitivity(o.privacy.draws)
    else:
        assert 0 < verdict.epsilon <= figures["epsilon_proven"]


def test_a_clip_that_follows_the_records_ties_scores_together() -> None:
    changes = {"privacy__clip": {"kind": "quantile"}, "privacy__noise__family": {"kind": "gaussian"}}
    o = outlined("dp-dkm/truncated", mode="paper", **changes)
    assert not attack_of(o, "messages", None).independent


@pytest.mark.parametrize("canary", ["dirac", "lengths"])
def test_who_sees_messages_alone_learns_nothing_from_the_models(canary: str) -> None:
    """One round of DP-DSGD: the gradient is in the models, and the messages went out before it."""
    o = outlined(algorithm__kind="dp-dsgd", rounds=1, privacy__sampling={"kind": "full"})
    told = {name: attack_of(o, name, canary).batch(0, 2).scores for name in ("all", "messages")}
    assert len(np.unique(told["all"])) > 1
    assert not told["messages"].any()


@pytest.mark.parametrize("observer", ["messages", "final", "neighbour", "coalition:1,2"])
def test_planned_releases_are_attacked_for_those_who_see_them_all(observer: str) -> None:
    with expect_refusal(key="--observer", remedy=True):
        attack_of(outlined(), observer, "release")


def test_a_row_for_every_record_is_refused_where_memory_has_no_room() -> None:
    o = outlined("dp-dkm/lasso", mode="paper", data__n=50_000)
    with expect_refusal(key="privacy.sampling.kind", value="single", names="10,000 3,663", remedy=True):
        attack_of(o, "all", None)


def test_the_last_iterate_of_algorithm_1_shows_everything() -> None:
    """DP-dKM's line 11, whatever the noise: one training is enough."""
    o = outlined("dp-dkm/truncated", mode="paper", privacy__noise__family={"kind": "gaussian"})
    attack = attack_of(o, "all", None)
    verdict = verdict_of(attack, o)
    assert verdict.violated == ("claimed",)
    assert verdict.runs == 1
    assert "line 11" in " ".join(attack.notes)
    assert "line 11" not in " ".join(attack_of(o, "messages", None).notes)


@pytest.mark.parametrize(
    "operator",
    [
        "forward-backward",
        *(pytest.param(o, marks=pytest.mark.slow) for o in ("douglas-rachford", "peaceman-rachford")),
    ],
)
def test_a_sound_operator_is_not_accused_and_its_figure_is_nearly_reached(operator: str) -> None:
    o = outlined("dp-dkm/lasso", rounds=20, algorithm__operator=operator)
    attack = attack_of(o, "all", None)
    assert not attack.independent  # behind a penalty's map some coordinates are lost, and which depends on the others
    verdict = verdict_of(attack, o)
    assert verdict.violated == ()
    assert 0.6 * 0.5 <= figure(verdict, "Gaussian DP") <= 1.1 * 0.5


@pytest.mark.parametrize("family", ["laplace", "truncated-gaussian"])
def test_noises_that_are_not_gaussian_are_attacked_in_the_messages(family: str) -> None:
    sound = outlined(privacy__noise__family={"kind": family}, privacy__sampling={"kind": "full"}, rounds=2)
    parts = on_axes(sound)
    assert verdict_of(Axes(parts, EVERYONE), sound).violated == ()
    thin = thinner(parts, 4)
    assert verdict_of(Axes(thin, EVERYONE), sound).violated == ("proven",)


def test_fixed_size_sampling_can_only_be_audited_by_replacing() -> None:
    o = outlined(privacy__sampling={"kind": "single"}, mode="paper")
    with expect_refusal(key="privacy.sampling.kind", value="single", names="replace-one"):
        attack_of(o, "all", None)


def test_lengths_are_not_measured_on_nodes_that_cannot_draw() -> None:
    o = outlined(privacy__sampling={"kind": "single"}, privacy__adjacency="replace-one", mode="paper")
    with expect_refusal(key="privacy.sampling.kind", value="single", names="--canary", remedy=True):
        attack_of(o, "all", "lengths")


def test_coins_are_fair_secret_and_their_own() -> None:
    stream = Stream.seeded(3)
    coins = canaries.flip(stream, 50, 400)
    assert abs(coins.mean() - 0.5) < 0.02
    assert not np.array_equal(coins, canaries.flip(Stream.seeded(4), 50, 400))
    assert len({NOISE, SAMPLING, COUNT, COINS}) == 4


@pytest.mark.parametrize(
    "text", ["everyone", "coalition", "coalition:", "coalition:9", "coalition:a", "coalition:0,1,2,3,4", ""]
)
def test_unknown_observers_are_refused(text: str) -> None:
    with expect_refusal(key="--observer"):
        observer_of(text, build_topology("ring", nodes=N, weights="doubly", seed=0))


def test_a_nodes_own_view_is_for_exact_means() -> None:
    ring = build_topology("ring", nodes=N, weights="doubly", seed=0)
    for text in ("node:1", "outsider"):
        with expect_refusal(key="--observer", names="algorithm.mixes exact", remedy=True):
            observer_of(text, ring)
        windows = window_topology(build_topology("one-peer-exponential", nodes=N, weights="doubly", seed=0), 0)
        assert observer_of(text, windows).name == text
