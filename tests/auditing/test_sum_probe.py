"""The search finds every known way in which a record is not alone, and accuses nothing that is sound."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.audits import outlined
from tests.support.refusals import expect_refusal
from tests.support.unsafe_modules import (
    CLASSES,
    FEATURES,
    MIXING,
    HandMadeSum,
    Head,
    Remembers,
    StandardisedRecords,
)
from torch import Tensor, nn

from gossamer.auditing.sensitivity import OddRecord, Searched
from gossamer.auditing.sensitivity import search as search_with
from gossamer.auditing.sum_probe import LATER, OTHER, OWN, LotScene, SumProbe, scenes
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.mechanism.clipping import NormalisedClip
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

FEW = {"nodes": 3, "data.train_rows": 60, "rounds": 20, "privacy.noise.source": "seeded"}
TRIES = 100


class FreshProbe(SumProbe):
    """Every measurement has a vector and a module of its own."""

    def __init__(self, found: Parts, make_vector: Any):
        super().__init__(found)
        self._new_vector = make_vector  # type: ignore[method-assign]

    def _sums(self, scene: Any, lots: Any) -> Any:
        self._vector = None
        return super()._sums(scene, lots)


def search(found: Parts, *, seed: int | None = None, make_vector: Any = None, **how: Any) -> Searched:
    probe = SumProbe(found) if make_vector is None else FreshProbe(found, make_vector)
    return search_with(probe, found.plan.config.seed if seed is None else seed, **how)


def parts(module: nn.Module | None = None, **changes: Any) -> Parts:
    return assemble(Plan.of(resolve(recipes.read("quickstart"), {**FEW, **changes}), module=module))


def smuggled(module: nn.Module) -> Parts:
    """The parts of a plain head with this module in its place, past the checks that would refuse it."""
    plain = parts(Head())
    return replace(plain, plan=replace(plain.plan, module=module))


def fooled(found: Parts, **how: Any) -> Callable[[nn.Module], HandMadeSum]:
    """The run's parts with records that share a batch: the fix taken out."""
    return lambda module: HandMadeSum(module, found.plan.loss, **how)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_sound_module_is_not_accused_of_the_order_of_additions(scale: float) -> None:
    """A record that overflows has the lots of all nodes added again, in another order. Large inputs amplify that."""

    class Scaled(nn.Flatten):
        def forward(self, x: Tensor) -> Tensor:
            return scale * super().forward(x)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(1)
        net = nn.Sequential(Scaled(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        sound = Plan.of(resolve(recipes.read("quickstart"), {"rounds": 20}), module=net)
        found = search(assemble(sound), tries=200)
    finally:
        torch.set_num_threads(before)
    assert not found.broken, found.figures()["movements"][0]
    assert all(movement.rounding <= 1e-3 for movement in found.worst.values())


@pytest.mark.parametrize("kind", MIXING)
def test_a_module_that_mixes_records_is_found(kind: str) -> None:
    mixing = smuggled(MIXING[kind]())
    found = search(mixing, tries=TRIES, make_vector=fooled(mixing))
    own, others = found.worst[OWN], found.worst[OTHER]
    assert found.broken
    assert others.broken  # nodes share the batch
    assert own.moved > 1.2 * own.priced
    assert not found.worst[LATER].broken
    assert math.isfinite(own.moved)


def test_the_same_sums_of_a_module_that_is_alone_are_not_accused() -> None:
    alone = parts(Head())
    found = search(alone, tries=TRIES, make_vector=fooled(alone))
    assert not found.broken
    assert found.worst[OWN].moved == pytest.approx(1, abs=1e-4)  # and the bound is reached
    assert found.worst[OTHER].moved <= found.worst[OTHER].rounding < 1e-3


def test_a_module_that_remembers_moves_a_later_sum() -> None:
    remembering = smuggled(Remembers())
    found = search(remembering, tries=TRIES, make_vector=fooled(remembering))
    assert found.worst[LATER].moved > 0.5
    assert found.worst[LATER].broken
    assert not found.worst[OWN].broken  # in its own release it is alone


def test_a_record_that_poisons_the_sum_is_found() -> None:
    poisoned = smuggled(StandardisedRecords())
    found = search(poisoned, tries=TRIES, make_vector=fooled(poisoned, poisoned=True))
    assert math.isinf(found.worst[OWN].moved)
    assert found.worst[OWN].broken


def test_norms_that_are_a_little_short_are_found() -> None:
    found = parts(Head())
    short = search(found, tries=TRIES, make_vector=fooled(found, norm=lambda g: (1 - 0.0076) * g.norm()))
    assert short.worst[OWN].moved == pytest.approx(1 / (1 - 0.0076), rel=1e-5)
    assert short.broken
    barely = search(found, tries=TRIES, make_vector=fooled(found, norm=lambda g: (1 - 3e-4) * g.norm()))
    assert barely.broken


class GramOfTwoPositions:
    """Linear(x₁) + Linear(x₂): ‖g‖² = ‖x₁ + x₂‖² ‖s‖² + ‖2s‖², the first from the four products of x₁ and x₂."""

    def __init__(self, loss: Any, width: int, module: nn.Module, *, exact: bool) -> None:
        self.loss, self.width, self.exact = loss, width, exact

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Any, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        weight, bias = points.split([self.width * CLASSES, CLASSES], 1)
        rows = x.reshape(*mask.shape, 2, self.width)
        outputs = (rows.sum(2) @ weight.view(-1, CLASSES, self.width).mT + 2 * bias[:, None]).requires_grad_()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(self.loss(outputs.flatten(0, 1), y.flatten(0, 1)).sum(), outputs)
        products = torch.einsum("mbpw,mbqw->mbpq", rows, rows)  # in float32 these cancel: this is the fault
        squares = rows.double().sum(2).square().sum(2) if self.exact else products.sum((2, 3))
        norms = ((squares + 4).clamp_min(0).sqrt() * slopes.double().norm(dim=2)).where(mask, 0.0).float()
        usable = norms.isfinite() & mask
        weights = weigh(norms).where(usable, 0.0)
        slopes = weights[..., None] * slopes.where(usable[..., None], 0.0)
        rows = rows.sum(2).where(usable[..., None], 0.0)
        return torch.cat([(slopes.mT @ rows).flatten(1), 2 * slopes.sum(1)], 1), norms


def test_gram_norms_in_single_precision_are_found() -> None:
    """Positions that cancel leave a small rest of long products, whose rounding is larger than the rest."""
    width = 1024

    class TwoPositions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(width, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x.reshape(len(x), 2, width)).sum(1)
            return out

    data = {"kind": "synthetic-classification", "n": 12, "features": 2 * width, "classes": CLASSES, "test": 0}
    config = resolve(recipes.read("quickstart"), {"nodes": 2, "data": data, "model": {"kind": "own"}, "rounds": 4})
    wide = assemble(Plan.of(config, module=TwoPositions()))
    loss = wide.plan.loss
    rounded, right = (
        search(wide, tries=150, make_vector=partial(GramOfTwoPositions, loss, width, exact=exact))
        for exact in (False, True)
    )
    assert rounded.broken
    assert rounded.worst[OWN].moved > 1.1  # how far beyond depends on the order in which a machine adds
    assert not right.broken


def test_a_gamma_without_a_floor_is_found() -> None:
    """1 / (‖g‖ + γ) in float32: the square of 1e-23 is 0, and a weight of 1e30 meets a vector that is not."""
    short = parts(Headless(), **{"privacy.clip": {"kind": "normalised"}})

    def squared(gradient: Tensor) -> Tensor:
        return gradient.square().sum().sqrt()

    def tiny(module: nn.Module) -> Any:
        sums = HandMadeSum(module, short.plan.loss, norm=squared)

        def vector(points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Any, **rest: Any) -> Any:
            return sums(points, x, y, mask, NormalisedClip(gamma=1e-30).at(0, 1).weigh, **rest)

        return vector

    found = search(short, tries=150, make_vector=tiny)
    assert found.worst[OWN].moved > 1e3


class Headless(Head):
    """Without a bias, so that a short record has a short gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES, bias=False)


class Dropped(Head):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def prepared(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(x)
        return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"privacy.clip": {"kind": "normalised"}},
        {"privacy.clip": {"kind": "quantile"}},
        {"privacy.clip": {"kind": "constant", "bound": 0.3}, "privacy.centre": 0.2},
        {"privacy.adjacency": "replace-one"},
        {"loss": {"kind": "squared"}},
        {"model": {"kind": "mlp", "hidden": [8]}},
        {"model": {"kind": "one-vs-all"}},
        {"baseline": "central"},
    ],
    ids=[
        "softmax",
        "normalised",
        "quantile",
        "centred",
        "replace-one",
        "squared",
        "mlp",
        "one-vs-all",
        "central",
    ],
)
def test_all_our_own_parts_keep_their_word(changes: dict[str, Any]) -> None:
    found = search(parts(**changes), tries=300)
    assert not found.broken
    assert found.worst[OWN].moved > 0.8 * found.worst[OWN].priced


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["dp-dkm/lasso", "dp-dkm/logistic", "dp-dkm/truncated", "dyn-d2p/dirac"])
def test_offline_recipes_keep_their_word(recipe: str) -> None:
    found = search(assemble(Plan.of(resolve(recipes.read(recipe)))), tries=300)
    assert not found.broken


@pytest.mark.slow
def test_a_module_that_draws_numbers_is_not_taken_for_one_that_mixes() -> None:
    dropping = parts(Dropped())
    assert not search(dropping, tries=TRIES).broken
    mixing = smuggled(MIXING["mixup"]())
    assert search(mixing, tries=TRIES, make_vector=fooled(mixing)).broken


@pytest.mark.slow
def test_equal_seeds_find_the_same() -> None:
    plain = parts(Head())

    def figures(seed: int) -> list[Any]:
        return search(plain, tries=40, seed=seed).figures()["movements"]  # type: ignore[no-any-return]

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_it_ends_when_its_tries_or_its_seconds_are_used_up() -> None:
    found = parts()
    assert search(found, tries=20).tried <= 20
    cut = search(found, seconds=0.0)
    assert cut.tried == 0
    assert not cut.in_time
    assert not cut.broken


def test_what_bounds_no_record_is_refused() -> None:
    with expect_refusal(key="privacy.clip.kind", value="none"):
        search(assemble(outlined(**{"baseline": "non-private"})))


def test_a_module_that_stops_on_ordinary_records_is_one_sentence() -> None:
    def broken(module: nn.Module) -> Any:
        raise RuntimeError("shapes\ndo not fit")

    with expect_refusal(key="module", names="RuntimeError"):
        search(parts(), tries=10, make_vector=broken)


@pytest.mark.slow
def test_a_record_that_stops_the_run_is_told_but_breaks_no_bound() -> None:
    ordinary = parts(Head())
    o = ordinary.plan

    def strict(module: nn.Module) -> Any:
        def vector(points: Tensor, x: Tensor, *rest: Any, **more: Any) -> Any:
            if not bool(x.isfinite().all()):
                raise ValueError("no such record")
            return own(points, x, *rest, **more)

        own = o.method.vector(o.algorithm, module, o.classes)
        return vector

    found = search(ordinary, tries=150, make_vector=strict)
    assert found.stopped is not None
    assert "ValueError: no such record" in found.stopped
    assert not found.broken


@pytest.fixture(scope="module")
def made() -> list[LotScene]:
    return scenes(parts(), 0)


def record(scene: LotScene) -> OddRecord:
    return OddRecord(torch.full(scene.lots.x.shape[2:], 7.0), torch.tensor(3), "sevens")


def test_all_ways_to_join_sizes_and_ends_of_the_schedule_are_tried(made: list[LotScene]) -> None:
    assert {scene.how for scene in made} == {"in place", "grown", "swapped"}
    assert {len(scene.start) for scene in made} == {1, 2, 3}
    assert {0, 1, 2, 3} <= {int(scene.lots.mask[scene.victim].sum()) for scene in made}
    bounds = {round(float(scene.clip.reference[0]), 3) for scene in made}
    assert {1.0, round(2.0 ** -(19 / 20), 3)} <= bounds  # Dyn-D2P's first clip and its last


def test_only_the_record_differs(made: list[LotScene]) -> None:
    for scene in made:
        before, after = scene.lots, scene.with_record(record(scene))
        assert bool(after.mask[scene.victim, scene.place])
        assert bool((after.x[scene.victim, scene.place] == 7).all())
        assert int(after.y[scene.victim, scene.place]) == 3
        assert int(after.mask.sum() - before.mask.sum()) == (scene.how != "swapped")
        same = torch.ones_like(after.mask)
        same[scene.victim, scene.place] = False
        if scene.how == "grown":
            assert not bool(after.mask[:, -1][torch.arange(len(after.mask)) != scene.victim].any())
            same = same[:, :-1]
        assert torch.equal(after.x[:, : same.shape[1]][same], before.x[same])
        assert torch.equal(after.mask[:, : same.shape[1]][same], before.mask[same])
        assert scene.priced == (2.0 if scene.how == "swapped" else 1.0)


def test_where_a_record_is_replaced_only_swaps_are_neighbours() -> None:
    assert {scene.how for scene in scenes(parts(**{"privacy.adjacency": "replace-one"}), 0)} == {"swapped"}


@pytest.mark.slow
def test_a_clip_that_follows_records_is_tried_far_from_its_start() -> None:
    bounds = {float(scene.clip.reference[0]) for scene in scenes(parts(**{"privacy.clip": {"kind": "quantile"}}), 0)}
    assert min(bounds) <= 1e-12
    assert max(bounds) >= 1e12


def test_the_modules_own_randomness_is_the_same_every_time_and_put_back(made: list[LotScene]) -> None:
    def vector(points: Tensor, *lot: Any, **more: Any) -> tuple[Tensor, Tensor]:
        drawn = torch.rand(1) + random.random() + float(np.random.rand())
        return points * 0 + drawn, torch.zeros(len(points), 1)

    state, plain, numbers = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    first, again, other = (
        scene.sums(vector, scene.lots)[0, 0] for scene in (made[0], made[0], replace(made[0], number=9))
    )
    assert first == again
    assert first != other
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == plain
    assert (np.random.get_state()[1] == numbers).all()  # type: ignore[index]


def test_movements_are_measured_in_bounds(made: list[LotScene]) -> None:
    scene = next(scene for scene in made if float(scene.clip.reference[0]) < 0.6)
    zeros = torch.zeros(len(scene.start), 2, dtype=torch.float64)
    moved = zeros + torch.tensor([float(scene.clip.reference[0]), 0.0])
    assert scene.in_bounds(moved, zeros).tolist() == pytest.approx([1.0] * len(scene.start))
    nan, bound = math.nan, float(scene.clip.reference[0])
    one = replace(scene, start=scene.start[:1])
    for a, b, expected in (
        ([3.0, 4.0], [0.0, 0.0], 5.0),
        ([nan, 0.0], [0.0, 0.0], math.inf),
        ([nan, nan], [nan, 1.0], 0.0),
        ([1.0, 1.0], [1.0, math.inf], math.inf),
    ):
        apart = one.in_bounds(torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
        assert float(apart) * bound == pytest.approx(expected)


@pytest.mark.parametrize(("module", "leads"), [(MIXING["slight mean"], True), (Head, False)])
def test_the_slope_leads_to_other_records_only_where_there_is_a_way(module: type[nn.Module], leads: bool) -> None:
    probe = SumProbe(smuggled(module()))
    scene = scenes(parts(Head()), 0)[0]
    odd = OddRecord(torch.ones(scene.lots.x.shape[2:]), torch.tensor(0), "ones")
    assert (probe.slope(scene, odd) is not None) is leads
