"""Private local models: Lemma 4 holds, every write is priced once, and lots are disjoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.mechanism import noise_of

from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event
from gossamer.algorithms.base import Exponential
from gossamer.kernels.noise import Stream
from gossamer.kernels.rounding import EXCESS
from gossamer.mechanism.noise.base import COUNT
from gossamer.mechanism.reader import Records
from gossamer.mechanism.sampling import OnePassSampler, PoissonSampler
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.controllers import Observation
from gossamer.methods.without_replacement.local_models import (
    Blind,
    LocalModels,
    RawView,
    ReleasedView,
)


class Pages:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.events: dict[int, list[Event]] = {}

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        for nodes, event in releases:
            for node in nodes:
                self.events.setdefault(node, []).append(event)


def data(
    nodes: int, size: int, width: int, classes: int, seed: int = 0, *, norm: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(nodes * size, width))
    x *= norm * rng.uniform(0.3, 1.0, (len(x), 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return torch.from_numpy(x).float(), torch.from_numpy(rng.integers(0, classes, len(x)))


def make(
    x: torch.Tensor,
    y: torch.Tensor,
    nodes: int,
    *,
    lot: int = 4,
    classes: int = 3,
    multiplier: float = 0.0,
    seed: int = 0,
    **changes: Any,
) -> tuple[LocalModels, Pages]:
    size, pages = len(x) // nodes, Pages()
    own = {key: changes.pop(key) for key in ("regularisation", "radius", "average", "rounds") if key in changes}
    given_: dict[str, Any] = {
        "rule": WithoutReplacement(lr=Exponential(0.1), **{"rounds": -(-size // lot), **own}),
        "records": Records(x, y, [size] * nodes),
        "sampler": OnePassSampler([lot] * nodes, [size] * nodes),
        "classes": classes,
        "record_bound": 1.0,
        "view": Blind(),
        "noise": noise_of(multiplier, nodes),
        "stream": Stream.seeded(seed),
        "book": pages,
        "nodes": range(nodes),
        "lots": [float(lot)] * nodes,
        "allowance": [10**6] * nodes,
        "adjacency": "replace-one",
        "of": nodes,
        **changes,
    }
    return LocalModels(**given_), pages


def play(models: LocalModels, wants: list[torch.Tensor], lr: Any, public: torch.Tensor) -> torch.Tensor:
    """Turns in which every node writes its own copy of a public model (m, C, d): no chain, so nodes stay independent."""
    public = public.clone()
    for t, chosen in enumerate(wants):
        models.open(t, lr(t))
        models.prepare(chosen)
        for i in range(len(chosen)):
            if bool(chosen[i].any()):
                public[i] = models.write(i, public[i], chosen[i])
        models.step_locally(chosen)
    return public


@pytest.mark.parametrize("regularisation", [0.0, 0.1])
@pytest.mark.parametrize("branch", ["local history", "current lot"])
@pytest.mark.parametrize("relation", ["replaced", "removed"])
def test_lemma_4_over_random_neighbours(regularisation: float, branch: str, relation: str) -> None:
    """500 pairs of data sets a case that differ in one record, in the history or in the lot of the write."""
    nodes, size, width, classes, lot = 250, 12, 3, 2, 4
    turns, worst = size // lot, 0.0
    lr = {0: 0.45, 1: 0.2, 2: 0.1}.__getitem__
    for seed in (1, 2):
        x, y = data(nodes, size, width, classes, seed)
        # Steep models: there the slopes of two records differ most.
        start = 6 * torch.randn(1, classes, width, generator=torch.Generator().manual_seed(seed)).expand(nodes, -1, -1)
        sampler = OnePassSampler([lot] * nodes, [size] * nodes)
        turn = turns - 1 if branch == "current lot" else 0
        rows = sampler.draw(Stream.seeded(seed), range(nodes), [size] * nodes, turn).rows[:, 0]
        at = torch.arange(nodes) * size + rows
        # The worst neighbour keeps its margin and turns the rest of the record round.
        along = start[0, 0] / start[0, 0].norm()
        other = x.clone()
        other[at] = 2 * (x[at] @ along)[:, None] * along - x[at] if relation == "replaced" else 0.0
        ends = []
        for features in (x, other):
            models, _ = make(features, y, nodes, lot=lot, classes=classes, seed=seed, regularisation=regularisation)
            models.local = start.double()
            write = torch.ones(nodes, classes, dtype=torch.bool)
            ends.append(play(models, [~write] * (turns - 1) + [write], lr, start))
        moved = (ends[0] - ends[1]).norm(dim=2)
        step = lr(turn)
        bound = (2 if relation == "replaced" else 1) * max(lr(t) for t in range(turns)) / lot
        own = (2 if relation == "replaced" else 1) * step / lot
        assert float(moved.max()) <= own * (1 + 1e-5) <= bound * (1 + 1e-5)
        assert float(moved.norm(dim=1).max()) <= math.sqrt(classes) * own * (1 + 1e-5)
        worst = max(worst, float(moved.max()) / own)
    assert worst > 0.7  # the pairs come near the bound: a bound of half the size would not hold


def test_steps_that_are_too_long_break_the_lemma() -> None:
    """Why η ≤ 1/(2μ) is enforced: with steps far beyond it two records' difference grows on its way."""
    nodes, size, lot = 400, 40, 4
    x, y = data(nodes, size, 2, 2, 3)
    x = x / x.norm(dim=1, keepdim=True)
    rows = (
        OnePassSampler([lot] * nodes, [size] * nodes).draw(Stream.seeded(3), range(nodes), [size] * nodes, 0).rows[:, 0]
    )
    other = x.clone()
    at = torch.arange(nodes) * size + rows
    other[at] = -x[at]
    write = torch.ones(nodes, 2, dtype=torch.bool)
    ends = [
        play(
            make(features, y, nodes, lot=lot, classes=2, seed=3)[0],
            [~write] * 9 + [write],
            lambda t: 30.0,
            torch.zeros(nodes, 2, 2),
        )
        for features in (x, other)
    ]
    assert float((ends[0] - ends[1]).norm(dim=2).max()) > 2 * 30.0 / lot


def test_records_longer_than_the_bound_are_scaled_into_it() -> None:
    x, y = data(1, 4, 3, 2, norm=1.0)
    ones = torch.ones(1, 2, dtype=torch.bool)
    far, near = (
        play(
            make(x / x.norm(dim=1, keepdim=True) * scale, y, 1, classes=2)[0],
            [ones],
            lambda t: 0.4,
            torch.zeros(1, 2, 3),
        )
        for scale in (1e6, 1.0)
    )
    torch.testing.assert_close(far, near, rtol=1e-4, atol=1e-6)


def _by_hand(
    x: np.ndarray,
    y: np.ndarray,
    wants: np.ndarray,
    order: list[list[int]],
    lots: Any,
    *,
    lr: float,
    decay: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1, one node and class after the other, in double precision."""
    nodes, classes = wants.shape[1:]
    w_global, w_local = np.zeros((classes, x.shape[1])), np.zeros((nodes, classes, x.shape[1]))

    def slope(w: np.ndarray, rows: np.ndarray, c: int) -> np.ndarray:
        sign = np.where(y[rows] == c, 1.0, -1.0)
        pull = sign / (1 + np.exp(sign * (x[rows] @ w)))
        return decay * w - (pull[:, None] * x[rows]).mean(0)

    for t in range(len(wants)):
        for m in order[t]:
            for c in range(classes):
                rows = lots[t][m]
                if wants[t, m, c]:
                    w_global[c] = (w_global[c] + w_local[m, c]) / 2 - lr * slope(w_global[c], rows, c)
                    w_local[m, c] = w_global[c]
                else:
                    w_local[m, c] = w_local[m, c] - 2 * lr * slope(w_local[m, c], rows, c)
    return w_global, w_local


def test_turns_are_algorithm_1() -> None:
    from gossamer.methods.without_replacement.token import Token, TokenExchange, order
    from gossamer.runtime.group import Alone

    nodes, size, classes, lot = 4, 24, 3, 4
    x, y = data(nodes, size, 5, classes, 7)
    wants = torch.from_numpy(np.random.default_rng(0).random((6, nodes, classes)) < 0.5)
    models, _ = make(x, y, nodes, lot=lot, classes=classes, regularisation=0.05)
    exchange = TokenExchange(Alone(nodes), 11, Token(torch.zeros(classes, 5)))
    for t in range(6):
        models.open(t, 0.3)
        models.prepare(wants[t])
        token = exchange(t, wants[t], lambda i, public, t=t: models.write(i, public, wants[t][i]))
        models.step_locally(wants[t])
    sampler = OnePassSampler([lot] * nodes, [size] * nodes)
    draws = [sampler.draw(Stream.seeded(0), range(nodes), [size] * nodes, t).rows.numpy() for t in range(6)]
    lots = [[m * size + rows[m] for m in range(nodes)] for rows in draws]
    w_global, w_local = _by_hand(
        x.double().numpy(),
        y.numpy(),
        wants.numpy(),
        [order(11, t, nodes) for t in range(6)],
        lots,
        lr=0.3,
        decay=0.05,
    )
    np.testing.assert_allclose(token.public.numpy(), w_global, atol=1e-5)
    np.testing.assert_allclose(models.local.numpy(), w_local, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_noise_is_what_the_ledger_says(share: float) -> None:
    """The std of 24,000 noises: right to 2% (4 standard errors), which rejects two thirds and three halves of it."""
    nodes, classes, width, z = 200, 4, 30, 3.0
    x, y = data(nodes, 4, width, classes)
    write, zero = torch.ones(nodes, classes, dtype=torch.bool), torch.zeros(nodes, classes, width)
    view = ReleasedView(share) if share else Blind()
    noised, pages = make(x, y, nodes, classes=classes, multiplier=z, view=view)
    plain, _ = make(x, y, nodes, classes=classes)
    end = play(noised, [write], lambda t: 0.2, zero) - play(plain, [write], lambda t: 0.2, zero)
    event = pages.events[0][0].release
    assert event.sensitivity == pytest.approx((1 + EXCESS) * math.sqrt(classes) * 0.2 / 4)
    assert event.noise_multiplier == pytest.approx(z)
    measured = float(end.std())
    assert measured == pytest.approx(event.sigma / math.sqrt(1 - share), rel=0.02)
    for wrong in (2 / 3, 3 / 2):
        assert measured != pytest.approx(wrong * event.sigma / math.sqrt(1 - share), rel=0.02)


def test_the_released_loss_takes_its_share_of_the_budget() -> None:
    """μ² of the loss and of the model add up to 1/z²: the loss's noise is z √C / √share times its sensitivity."""
    z, classes, share = 2.0, 5, 0.25
    x, y = data(1, 4, 3, classes)
    write = torch.ones(1, classes, dtype=torch.bool)
    found = []
    for seed in range(400):
        models, _ = make(x, y, 1, classes=classes, multiplier=z, view=ReleasedView(share), seed=seed)
        models.open(0, 0.1)
        models.prepare(write)
        found.append(models._noised(COUNT, 0, torch.zeros(classes, 1), models._loss_scales[0].expand(classes)))
    expected = z * math.sqrt(classes) / math.sqrt(share) * (2.0 / 2 / 4)
    assert float(torch.cat(found).std()) == pytest.approx(expected, rel=0.08)  # 2,000 draws: five standard errors


def test_a_write_is_one_event_over_all_lots_since_the_last() -> None:
    x, y = data(2, 24, 3, 3)
    models, pages = make(x, y, 2, multiplier=2.0, classes=3)
    stay, write = torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
    play(models, [stay, stay, write, stay, write, stay], lambda t: 0.4 / (t + 1), torch.zeros(2, 3, 3))
    for events in pages.events.values():
        assert [event.draw for event in events] == [2, 4]
        # the longest step of the window: turn 0 for the first write, turn 3 for the second
        assert [e.release.sensitivity for e in events] == pytest.approx(
            [(1 + EXCESS) * math.sqrt(3) * lr / 4 for lr in (0.4, 0.1)]
        )
        figure = proven(events, 1e-6, "replace-one")
        assert figure.epsilon == pytest.approx(gdp_epsilon(2 / 2.0, 1e-6))


def test_classes_that_write_at_different_turns_are_priced_together() -> None:
    x, y = data(1, 24, 3, 3)
    models, pages = make(x, y, 1, multiplier=2.0, classes=3)
    wants = [torch.tensor([[t % 3 == c for c in range(3)]]) for t in range(6)]
    play(models, wants, lambda t: 0.2, torch.zeros(1, 3, 3))
    events = pages.events[0]
    assert len(events) == 6
    # A record enters one write of each class: μ² = Σ_c (s/σ_c)², and σ_c = z √C s.
    assert proven(events, 1e-6, "add-remove").epsilon == pytest.approx(gdp_epsilon(1 / 2.0, 1e-6))


def test_several_passes_compose_and_no_write_reaches_over_two() -> None:
    x, y = data(1, 8, 3, 2)
    stay, write = torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    models, pages = make(x, y, 1, multiplier=2.0, classes=2, rounds=6)
    play(models, [stay, write] * 3, lambda t: 0.2, torch.zeros(1, 2, 3))
    assert [event.release.pass_number for event in pages.events[0]] == [0, 1, 2]
    assert proven(pages.events[0], 1e-6, "add-remove").epsilon == pytest.approx(gdp_epsilon(math.sqrt(3) / 2, 1e-6))
    models, _ = make(x, y, 1, multiplier=2.0, classes=2, rounds=6)
    with pytest.raises(ValueError, match="two passes"):
        play(models, [stay, stay, write], lambda t: 0.2, torch.zeros(1, 2, 3))


def test_the_last_turn_of_a_pass_is_announced() -> None:
    x, y = data(1, 8, 3, 2)
    models, _ = make(x, y, 1, classes=2, rounds=5)
    seen = []
    for t in range(5):
        seen.append(bool(models.open(t, 0.1).closing[0]))
        wants = torch.ones(1, 2, dtype=torch.bool)
        models.prepare(wants)
        models.write(0, torch.zeros(2, 3), wants[0])
        models.step_locally(wants)
    assert seen == [False, True, False, True, False]


def test_raw_views_are_logged_and_have_no_proof() -> None:
    x, y = data(2, 8, 3, 2)
    models, pages = make(x, y, 2, classes=2, multiplier=5.0, view=RawView())
    play(models, [torch.ones(2, 2, dtype=torch.bool)] * 2, lambda t: 0.1, torch.zeros(2, 2, 3))
    figure = proven(pages.events[1], 1e-6, "add-remove")
    assert math.isinf(figure.epsilon)
    assert "decided on raw losses" in (figure.because or "")


def test_released_views_show_only_what_was_released() -> None:
    """Another record changes nothing a controller sees until its noised write is out."""
    x, y = data(1, 16, 3, 2)
    other = -x
    stay, write = torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    views: list[list[Observation]] = []
    for features in (x, other):
        models, _ = make(features, y, 1, classes=2, multiplier=1.0, view=ReleasedView())
        seen, public = [], torch.zeros(2, 3)
        for t, chosen in enumerate((stay, stay, write, stay)):
            seen.append(models.open(t, 0.2))
            models.prepare(chosen)
            if t == 2:
                public = models.write(0, public, chosen[0])
            models.step_locally(chosen)
        views.append(seen)
    for a, b in list(zip(*views, strict=True))[:3]:
        assert torch.equal(a.state, b.state)
    assert not torch.equal(views[0][3].state, views[1][3].state)


def test_local_models_need_disjoint_lots() -> None:
    x, y = data(1, 20, 3, 2)
    models, _ = make(x, y, 1, classes=2, sampler=PoissonSampler([0.2]))
    with pytest.raises(ValueError, match="overlap"):
        play(models, [torch.zeros(1, 2, dtype=torch.bool)], lambda t: 0.1, torch.zeros(1, 2, 3))


def test_weights_stay_in_the_ball() -> None:
    x, y = data(1, 40, 3, 2)
    models, _ = make(x, y, 1, classes=2, multiplier=500.0, radius=0.3)
    write = torch.ones(1, 2, dtype=torch.bool)
    end = play(models, [write, ~write] * 5, lambda t: 0.4, torch.zeros(1, 2, 3))
    assert float(end.norm(dim=2).max()) <= 0.3 * (1 + 1e-6)
    assert float(models.local.norm(dim=2).max()) <= 0.3 * (1 + 1e-6)


def test_checkpoints_hold_public_values_only() -> None:
    x, y = data(1, 16, 3, 2)
    models, _ = make(x, y, 1, classes=2)
    assert set(models.state()) == {"draws", "released_loss"}
