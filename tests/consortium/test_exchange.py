"""The same algorithm files over sites that lose messages, crash, stop, leave and join."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortium import FAULTS, LR, PUSH_SUM, STUDY, Consortium, least_squares, noisy, starts
from tests.support.refusals import expect_refusal
from tests.support.simulated_links import Faults, MemoryStorage, Network
from tests.support.traced import total
from torch import Tensor

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import Centre, FinalGossip, Mixes, Momentum, TailAverage
from gossamer.consortium.contacts import Pace
from gossamer.consortium.exchange import Epoch, PeerExchange
from gossamer.consortium.journal import Journal
from gossamer.consortium.mass import Mass
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build

CASES = {
    "push-sum, one peer": (PUSH_SUM, "one-peer-exponential", 8),
    "push-sum, ring": (PUSH_SUM, "ring", 5),
    "push-sum, pieces": (
        TailAverage(Momentum(Mixes(PUSH_SUM, times=2), beta=0.5), start=3),
        "one-peer-exponential",
        4,
    ),
    "push-sum, agreed at the end": (FinalGossip(PUSH_SUM, last=9, rounds=3), "ring", 4),
    "push-sum, centred": (Centre(PUSH_SUM, size=1, bound=2.0, rounds=3), "ring", 4),
    "dsgd": (DSGD(lr=Exponential(LR)), "ring", 5),
    "dsgt": (DSGT(lr=Exponential(LR)), "ring", 5),
    "dsgt, twice": (Mixes(DSGT(lr=Exponential(LR)), times=2), "complete", 4),
    "dinno": (DiNNO(lr=Exponential(LR), steps=2), "ring", 5),
}


@pytest.mark.parametrize("case", CASES)
def test_without_faults_sites_are_the_simulator(case: str) -> None:
    algorithm, kind, n = CASES[case]
    topology = build(kind, nodes=n, weights=algorithm.weights, seed=0)
    draw, _ = least_squares(n)
    start = starts(n)
    sites = Consortium(algorithm, topology, start, draw, rounds=10).run()
    assert not any(exchange.contacts.refused for exchange in sites.exchanges.values())
    found = torch.cat([algorithm.model(sites.final[name]) for name in sites.names])

    def grad(points: Tensor) -> Tensor:
        return torch.cat([draw(i, 0, points[[i]]) for i in range(n)])

    whole = run(algorithm, algorithm.init(start), grad, SimulatedExchange(topology), rounds=10)
    torch.testing.assert_close(found, algorithm.model(whole), rtol=1e-5, atol=1e-6)
    assert sites.network.clock() < 0.2  # nobody waited for a deadline


def check_mass(sites: Consortium, lr: float = LR) -> None:
    """Σ w = n and Σ x = Σ x₀ − η Σ g of all rounds that are on disk, read from the disks alone."""
    masses = sites.masses()
    x, w = total(masses)
    due = sites.start.double().sum(0)
    for mass in masses:
        for t, gradient in sites.used[mass.name].values():
            if t <= mass.place.round:
                due = due - lr * gradient.double()[0]
    assert abs(float(w) - len(masses)) <= 1e-9
    assert float((x - due).norm() / due.norm()) <= 1e-5


def check_released_once(sites: Consortium) -> None:
    for ledger in sites.ledgers.values():
        assert len(set(ledger)) == len(ledger)


def with_crashes(plan: dict[tuple[int, int], float], seed: int, off: float) -> Consortium:
    left = dict(plan)
    draw, _ = least_squares(3)
    topology = build("ring", nodes=3, weights="column", seed=0)
    return Consortium(
        PUSH_SUM, topology, starts(3), noisy(draw), 7, faults=FAULTS, seed=seed, off=off, pace=Pace(deadline=1.0, late=2, patience=5),
        crash=lambda site, n: left.pop((int(site[-2:]), n), None),
    ).run()  # fmt: skip


crash_plans = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(1, 24)), st.sampled_from([0.0, 0.5, 0.99, 1.0]), max_size=6
)


away = st.sampled_from([0.1, 3.0])  # short, or until the others are more than `late` rounds ahead


@settings(max_examples=10, deadline=None)
@given(crash_plans, st.integers(0, 1000), away)
def test_a_crash_between_any_two_writes_loses_nothing(
    plan: dict[tuple[int, int], float], seed: int, off: float
) -> None:
    sites = with_crashes(plan, seed, off)
    assert len(sites.final) == 3  # the study finishes
    check_mass(sites)
    check_released_once(sites)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(crash_plans, st.integers(0, 10**6), away)
def test_a_crash_between_any_two_writes_loses_nothing_often(
    plan: dict[tuple[int, int], float], seed: int, off: float
) -> None:
    sites = with_crashes(plan, seed, off)
    check_mass(sites)
    check_released_once(sites)


def test_if_all_sites_crash_at_any_write_the_disks_have_all_mass() -> None:
    """Looked at before every single write of every site: what is on the disks then is what a power cut leaves."""
    draw, _ = least_squares(4)
    seen = []

    def look(site: str, n: int) -> float | None:
        held = [Journal(MemoryStorage(data=sites.disks[name].data)).contents for name in sites.names]
        masses = [Mass.restore(h.meta, h.tensors, late=4) for h in held if h.meta is not None]
        if len(masses) == 4:
            seen.append(float(total(masses)[1]))
        return 0.7 if random.random() < 0.01 else None

    random.seed(3)
    sites = Consortium(
        PUSH_SUM, build("one-peer-exponential", nodes=4, weights="column", seed=0), starts(4), noisy(draw), 12,
        faults=FAULTS, seed=1, crash=look,
    )  # fmt: skip
    sites.run()
    assert len(seen) > 80
    assert max(abs(w - 4) for w in seen) <= 1e-12


def test_parcels_are_added_in_time_late_or_come_back() -> None:
    """One direction of a link is cut for a while: what was under way is late or goes back, and all of it is counted."""
    draw, _ = least_squares(3)
    sites = Consortium(
        PUSH_SUM, build("ring", nodes=3, weights="column", seed=0), starts(3), draw, 40,
        pace=Pace(patience=5, deadline=0.2, late=2, tick=0.05),
    )  # fmt: skip

    def cut(site: str, n: int) -> None:
        now = sites.network.clock()
        change = sites.network.cut.add if 0.3 < now < 0.9 else sites.network.cut.discard
        change(("site-00", "site-01"))

    sites.crash = cut
    sites.run()
    check_mass(sites)
    back = [step for step in sites.steps["site-00"].values() if step.returned_from]
    assert back  # more than two rounds later: taken back by its sender
    kept = [place for place, step in sites.steps["site-00"].items() if "site-01" not in step.sent]
    assert 0 < len(kept) < 30  # its share stayed while the link was down, and not afterwards


def test_a_stopped_site_costs_one_deadline_and_catches_up() -> None:
    draw, _ = least_squares(4)
    sites: Consortium

    def slow(i: int, k: int, point: Tensor) -> Tensor:
        sites.network.pause(f"site-{i:02d}", 3.0 if (i, k) == (2, 10) else 0.05)
        return noisy(draw)(i, k, point)

    sites = Consortium(
        PushSum(lr=Exponential(0.03)),
        build("ring", nodes=4, weights="column", seed=0),
        starts(4),
        slow,
        100,
        pace=Pace(patience=5, deadline=0.5),
    )
    sites.run()
    ends = np.array(sites.seconds["site-00"])
    rounds = np.diff(ends)
    stopped = (ends[:-1] > 0.5) & (ends[1:] < 3.5)
    assert (rounds[stopped] > 0.4).sum() <= 1  # one deadline
    assert np.median(rounds[stopped]) <= 2 * np.median(rounds[:9])
    others, late = ends[-1], sites.seconds["site-02"][-1]
    assert late - others < 1.0  # it was 3 s behind
    assert len(sites.ledgers["site-02"]) < 80  # and did not pay for rounds that nobody mixed
    check_mass(sites, lr=0.03)
    models = torch.cat([PUSH_SUM.model(sites.final[name]) for name in sites.names])
    assert float((models - models.mean(0)).norm(dim=1).max()) < 0.5


def test_nothing_is_drawn_in_isolation() -> None:
    draw, _ = least_squares(3)
    sites = Consortium(
        PUSH_SUM, build("complete", nodes=3, weights="column", seed=0), starts(3), draw, 60,
        pace=Pace(patience=5, deadline=0.2, tick=0.05),
    )  # fmt: skip
    seen: list[tuple[float, int]] = []

    def cut(site: str, n: int) -> None:
        now = sites.network.clock()
        ends = {(a, b) for a in sites.names for b in sites.names if "site-02" in (a, b)}
        sites.network.cut = ends if 0.5 < now < 2 else set()
        seen.append((now, len(sites.ledgers["site-02"])))

    sites.crash = cut
    sites.run()
    drawn = [draws for now, draws in seen if 1.2 < now < 1.9]
    assert len(set(drawn)) == 1  # it waited, and drew nothing
    assert len(sites.ledgers["site-02"]) > drawn[0] + 5  # and went on
    check_mass(sites)


# Figures: least squares, 16 nodes


def lossy_push_sum(loss: float, how: str, rounds: int = 400, n: int = 16, seed: int = 0) -> float:
    """Matrices alone: the error of the mean model when messages are lost and nobody, or the sender, keeps the mass."""
    pick = np.random.default_rng(seed)
    topology = build("one-peer-exponential", nodes=n, weights="column", seed=0)
    draw, best = least_squares(n)
    x, w = starts(n, dtype=torch.float64), torch.ones(n, 1, dtype=torch.float64)
    for t in range(rounds):
        P = topology.weights(t).toarray()
        gone = (pick.random((n, n)) < loss) & ~np.eye(n, dtype=bool)
        lost = np.where(gone, P, 0).sum(0)
        P = np.where(gone, 0, P) + (np.diag(lost) if how == "kept" else 0)
        z = x / w
        g = torch.cat([draw(i, 0, z[[i]]) for i in range(n)])
        x, w = torch.from_numpy(P) @ (x - 0.05 * g), torch.from_numpy(P) @ w
    return float((x / w).mean(0).sub(best).norm())


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_loss_costs_little_where_no_mass_is_lost(loss: float) -> None:
    """Messages vanish without a word to their sender: unprotected push-sum blows up, sites get near the solution."""
    draw, best = least_squares(16)
    topology = build("one-peer-exponential", nodes=16, weights="column", seed=0)
    start = starts(16, dtype=torch.float64)
    sites = Consortium(
        PushSum(lr=Exponential(0.05)), topology, start, draw, 150, faults=Faults(loss=loss),
        pace=Pace(patience=5, deadline=1.0, tick=0.25),
    ).run()  # fmt: skip
    found = torch.cat([PUSH_SUM.model(sites.final[name]) for name in sites.names])
    assert not lossy_push_sum(loss, "lost") < 1e3  # or not a number
    assert lossy_push_sum(loss, "kept") < 0.02  # what could be had if every sender knew at once
    assert float(found.mean(0).sub(best).norm()) < 0.15 < float(start.mean(0).sub(best).norm())
    assert min(float(sites.final[name].w) for name in sites.names) > 0.1  # no step was ten times too long
    check_mass(sites, lr=0.05)


# Exchanges in pairs


def one_way_dsgt(loss: float, both: bool, rounds: int = 400, n: int = 6) -> float:
    """Matrices alone: what is left of the error when one direction of an edge may be lost, or only both."""
    pick = np.random.default_rng(0)
    W = build("ring", nodes=n, weights="doubly", seed=0).weights(0).toarray()
    draw, best = least_squares(n)
    x = starts(n, dtype=torch.float64)
    y, g = torch.zeros_like(x), torch.zeros_like(x)
    for _ in range(rounds):
        gone = pick.random((n, n)) < loss
        gone = (gone | gone.T if both else gone) & ~np.eye(n, dtype=bool)
        M = np.where(gone, 0, W)
        M = torch.from_numpy(M + np.diag(1 - M.sum(1)))
        x, y = M @ (x - 0.1 * y), M @ y
        new = torch.cat([draw(i, 0, x[[i]]) for i in range(n)])
        y, g = y + new - g, new
    return float((x - best).norm(dim=1).max())


@pytest.mark.slow
def test_trackers_survive_loss_in_pairs_only() -> None:
    draw, best = least_squares(6)
    algorithm = DSGT(lr=Exponential(0.1))
    sites = Consortium(
        algorithm, build("ring", nodes=6, weights="doubly", seed=0), starts(6, dtype=torch.float64), draw, 400,
        faults=Faults(loss=0.1),
    ).run()  # fmt: skip
    found = torch.cat([algorithm.model(sites.final[name]) for name in sites.names])
    error = float((found - best).norm(dim=1).max())
    assert one_way_dsgt(0.1, both=False) > 0.01
    assert one_way_dsgt(0.1, both=True) < 1e-8
    assert error < 1e-8


@pytest.mark.parametrize("algorithm", [DSGD(lr=Exponential(LR)), DSGT(lr=Exponential(LR))], ids=["dsgd", "dsgt"])
def test_pairs_move_by_the_same_amount_or_not_at_all(algorithm: Any) -> None:
    """Σ x stays what it was through loss and crashes; a tracker's Σ y is Σ g."""
    plan = {("site-01", 9): 0.5, ("site-03", 14): 1.0, ("site-00", 20): 0.0}
    sites = Consortium(
        algorithm, build("ring", nodes=4, weights="doubly", seed=0), starts(4, dtype=torch.float64),
        lambda i, k, point: torch.zeros_like(point) + (k == 0) * i, 12, faults=FAULTS, seed=2,
        pace=Pace(patience=5, deadline=0.5, tick=0.05), crash=lambda site, n: plan.pop((site, n), None),
    ).run()  # fmt: skip
    assert sites.crashes == 3
    held = total(sites.masses())
    ends = [sites.final[name] for name in sites.names]
    if isinstance(algorithm, DSGD):
        moved = LR * 6  # Σ of the only gradients, 0 + 1 + 2 + 3
        torch.testing.assert_close(held[0], sites.start.sum(0) - moved, rtol=1e-9, atol=1e-9)
    else:
        # What is kept, under way and in the states together: y is the sum of all gradients' changes, which is 0 here.
        torch.testing.assert_close(held[1], torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-9)
        assert all(torch.equal(end.g, torch.zeros_like(end.g)) for end in ends)


def test_pairs_refuse_edges_of_one_direction() -> None:
    topology = build("one-peer-exponential", nodes=4, weights="doubly", seed=0)
    network = Network(["a", "b", "c", "d"])
    with expect_refusal(key="topology.kind", value="one-peer-exponential"):
        site("a", Epoch(0, ("a", "b", "c", "d"), topology), network, DSGD(lr=Exponential(LR)))


# Epochs


def site(
    name: str, epoch: Epoch, network: Network, algorithm: Any = PUSH_SUM, disk: Any = None, **more: Any
) -> PeerExchange:
    return PeerExchange(
        name=name, study=STUDY, epoch=epoch, algorithm=algorithm, links=network.links(name),
        journal=Journal(disk or MemoryStorage()), pace=Pace(patience=5, deadline=0.5), clock=network.clock, incarnation=1,
        **{"initial": algorithm.init(torch.zeros(1, 3)), **more},
    )  # fmt: skip


def test_a_site_leaves_and_another_joins() -> None:
    """Round 8: a, b, c become a, b, d. The sum of the new epoch's weights is 3, and d has the model of the others."""
    network = Network(list("abcd"))
    old = Epoch(0, ("a", "b", "c"), build("ring", nodes=3, weights="column", seed=0))
    new = Epoch(1, ("a", "b", "d"), build("ring", nodes=3, weights="column", seed=0))
    disks = {name: MemoryStorage() for name in "abcd"}
    draw, _ = least_squares(4)
    models: dict[str, Any] = {}
    joined: dict[str, Any] = {}

    def rounds(exchange: PeerExchange, state: Any, first: int, last: int) -> Any:
        node = "abcd".index(exchange.name)
        return run(
            PUSH_SUM, state, lambda point: draw(node, 0, point), exchange, rounds=last, start=first,
            before_round=exchange.before_round, after_round=exchange.after_round,
        )  # fmt: skip

    def stays(name: str) -> None:
        exchange = site(name, old, network, disk=disks[name])
        exchange.meet(1.0)
        state = rounds(exchange, exchange.resume()[1], 0, 8)
        state = exchange.leave(8, state) if name == "c" else exchange.enter(new, 8, state)
        assert float(state.w) == 1.0
        joined[name] = state.x
        if name != "c":
            models[name] = PUSH_SUM.model(rounds(exchange, state, 8, 16))
            exchange.finish()

    def joins() -> None:
        network.pause("d", 0.02)
        exchange = site("d", new, network, disk=disks["d"], start=8)
        at, model = exchange.ask_model(network.clock() + 5)
        assert at >= 8
        joined["d"] = model
        exchange.adopt(PUSH_SUM.init(model))
        models["d"] = PUSH_SUM.model(rounds(exchange, exchange.resume()[1], 8, 16))
        exchange.finish()

    network.run({**{name: lambda name=name: stays(name) for name in "abc"}, "d": joins})
    held = [Journal(MemoryStorage(data=disks[name].data)).contents for name in "abd"]
    masses = [Mass.restore(h.meta, h.tensors, late=4) for h in held if h.meta is not None]
    assert [h.meta["epoch"] for h in held if h.meta is not None] == [1, 1, 1]
    assert abs(float(total(masses)[1]) - 3) <= 1e-9
    assert any(float((joined["d"] - joined[name]).norm()) < 0.5 for name in "ab")
    spread = torch.cat(list(models.values()))
    assert float((spread - spread.mean(0)).norm(dim=1).max()) < 0.3


def test_a_journal_of_another_site_study_or_epoch_is_refused() -> None:
    network = Network(["a", "b"])
    epoch = Epoch(0, ("a", "b"), build("complete", nodes=2, weights="column", seed=0))
    disk = MemoryStorage()
    first = site("a", epoch, network, disk=disk)
    first._write()
    with expect_refusal(key="journal"):
        site("b", epoch, network, disk=disk)
    with expect_refusal(key="journal", names="0"):
        site("a", Epoch(1, epoch.sites, epoch.topology), network, disk=disk)
    with expect_refusal(key="c", names="0"):
        site("c", epoch, network)


def test_a_weight_that_was_changed_is_an_error() -> None:
    network = Network(["a"])
    exchange = site("a", Epoch(0, ("a",), build("complete", nodes=1, weights="column", seed=0)), network)
    exchange.before_round(0)
    exchange(0, torch.zeros(1, 3), torch.ones(1, 1))
    exchange.before_round(1)
    with pytest.raises(ValueError, match="weight was changed"):
        exchange(1, torch.zeros(1, 3), torch.full((1, 1), 2.0))


def test_messages_leave_at_ticks_however_long_a_lot_takes() -> None:
    draw, _ = least_squares(3)
    sites: Consortium

    def slow(i: int, k: int, point: Tensor) -> Tensor:
        sites.network.pause(f"site-{i:02d}", 0.01 + 0.003 * i + 0.001 * k)
        return draw(i, k, point)

    sites = Consortium(
        PUSH_SUM,
        build("ring", nodes=3, weights="column", seed=0),
        starts(3),
        slow,
        8,
        pace=Pace(patience=5, deadline=0.5, tick=0.1),
    )
    left: list[float] = []
    send = sites.network.send
    sites.network.send = lambda *a: (
        left.append(sites.network.clock()) if b'"kind": "share"' in a[2] else None,
        send(*a),
    )[1]  # type: ignore[method-assign]
    sites.run()
    assert len(left) >= 3 * 2 * 8
    assert all(abs(at / 0.1 - round(at / 0.1)) < 1e-6 for at in left)
