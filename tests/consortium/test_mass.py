"""No parcel is added twice or lost, whatever happens on its way; decisions are told only once they are on disk."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tests.support.traced import total

from gossamer.consortium.frames import Decisions, Place, RefusedError
from gossamer.consortium.mass import KNOWN, MAX_WAITING, RETURNED, TAKEN, Mass, Parcel


def begun(name: str, value: float, *, late: int = 2) -> Mass:
    mass = Mass(name, 1, late=late)
    mass.begin(Place(0, 0), 0, begun_with(value))
    return mass


def begun_with(value: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((1, 3), value), torch.ones(1, 1, dtype=torch.float64)


def share(mass: Mass, to: str, part: float) -> Parcel:
    return mass.send(to, [part * tensor for tensor in mass.like])


def test_what_is_kept_is_x_minus_the_parcels_as_they_were_rounded() -> None:
    x = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    mass = Mass("a", 1, late=2)
    mass.begin(Place(0, 0), 0, (x, torch.ones(1, 1, dtype=torch.float64)))
    parcels = [share(mass, to, 1 / 3) for to in "bc"]
    (kept, w), _ = mass.sum_due()
    exact = x.double() - sum(parcel.content[0].double() for parcel in parcels)
    assert torch.equal(kept, exact)
    assert not torch.equal(kept, x.double() / 3)  # which is what drifts
    assert float(w) + 2 * float(parcels[0].content[1]) == pytest.approx(1, abs=1e-16)


def test_a_parcel_is_decided_about_once() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    parcel = share(a, "b", 0.5)
    assert [b.decide(parcel) for _ in range(3)] == [TAKEN, KNOWN, KNOWN]
    (x, w), added = b.sum_due()
    assert added == [parcel]
    assert torch.equal(x, torch.full((1, 3), 2.5).double())
    assert float(w) == 1.5
    b.begin(Place(1, 0), 0, (x.float(), w))
    assert b.decide(parcel) == KNOWN
    assert b.sum_due()[1] == []


def test_an_early_parcel_waits_for_its_exchange() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    a.begin(Place(1, 0), 0, begun_with(1.0))
    assert b.decide(share(a, "b", 0.5)) == TAKEN
    assert b.sum_due()[1] == []
    b.begin(Place(1, 0), 0, begun_with(2.0))
    assert len(b.sum_due()[1]) == 1


def test_an_old_parcel_goes_back_and_is_added_where_it_came_from_once() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    parcel = share(a, "b", 0.5)
    b.begin(Place(3, 0), 0, begun_with(2.0))
    assert b.decide(parcel) == RETURNED
    b.mark_written()
    for _ in range(2):
        a.apply_decisions("b", b.durable_view("a").decisions)
    (x, w), added = a.sum_due()
    assert added == [parcel]
    assert torch.equal(x, torch.ones(1, 3).double())
    assert float(w) == 1.0


def test_channels_do_not_mix() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    parcel = share(a, "b", 0.5)
    b.begin(Place(1, 0), 1, begun_with(7.0))
    b.decide(parcel)
    assert b.sum_due()[1] == []
    b.begin(Place(2, 0), 0, begun_with(2.0))
    assert b.sum_due()[1] == [parcel]


def test_nothing_is_told_before_it_is_on_disk() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    b.decide(share(a, "b", 0.5))
    assert b.durable_view("a").decisions == Decisions()
    assert a.durable_view("b").following == 0
    assert b.has_unwritten_decisions
    b.mark_written()
    a.mark_written()
    assert not b.has_unwritten_decisions
    assert b.durable_view("a").decisions == Decisions(1, (0,))
    a.apply_decisions("b", b.durable_view("a").decisions)
    assert a.durable_view("b").oldest == 0  # a crash now would bring the parcel back: its number must stay known
    assert a.has_unwritten
    a.mark_written()
    assert a.durable_view("b").oldest == 1


def test_a_journal_that_is_an_old_copy_is_noticed() -> None:
    a = begun("a", 1.0)
    share(a, "b", 0.5)
    with pytest.raises(RefusedError, match="is a's journal old"):
        a.apply_decisions("b", Decisions(1, (0, 1)))
    assert len(a.outbound["b"].parcels) == 1


def test_an_older_incarnation_is_refused_and_a_newer_one_counts_anew() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    old = share(a, "b", 0.5)
    b.decide(old)
    reborn = Mass("a", 2, late=2)
    reborn.begin(Place(0, 0), 0, begun_with(1.0))
    assert b.decide(share(reborn, "b", 0.25)) == TAKEN
    with pytest.raises(RefusedError, match="lost its state"):
        b.decide(old)


def test_no_site_fills_the_memory_of_another() -> None:
    a, b = begun("a", 1.0), begun("b", 2.0)
    for _ in range(MAX_WAITING):
        assert b.decide(share(a, "b", 0.0)) == TAKEN
    with pytest.raises(RefusedError, match="too many"):
        b.decide(share(a, "b", 0.0))


SITES = "abc"


@pytest.mark.parametrize("seed", range(10))
def test_mass_stays_whatever_order_things_happen_in(seed: int) -> None:
    """The machine alone: splits, frames (lost, repeated, reordered), writes and crashes, looked at step by step."""
    pick = random.Random(seed)
    masses = {name: begun(name, float(i + 1)) for i, name in enumerate(SITES)}
    disks: dict[str, Any] = {}

    def write(name: str) -> None:
        disks[name] = masses[name].snapshot()
        masses[name].mark_written()

    for name in SITES:
        write(name)
    frames: list[Any] = []  # never removed: any may come again, and late
    for _ in range(300):
        action = pick.choices(["split", "say", "carry", "write", "crash"], [3, 6, 8, 2, 1])[0]
        name, other = pick.sample(SITES, 2)
        mass = masses[name]
        if action == "split":
            kept, _ = mass.sum_due()
            rounded = tuple(t.to(like.dtype) for t, like in zip(kept, mass.like, strict=True))
            mass.begin(Place(mass.place.round + 1, 0), 0, rounded)
            share(mass, other, 0.5)
            write(name)
        elif action == "write":
            write(name)
        elif action == "crash":
            masses[name] = Mass.restore(*disks[name], late=2)
        elif action == "say":
            told, link = mass.durable_view(other), mass.outbound.get(other)
            known = [p for p in link.parcels.values() if p.sequence < told.following] if link else []
            frames.append((name, other, pick.choice([None, *known]), told))
        elif frames:
            sender, receiver, parcel, told = frames[-min(len(frames), int(pick.paretovariate(0.7)))]
            at = masses[receiver]
            at.forget_settled(sender, 1, told.oldest)
            at.apply_decisions(sender, told.decisions)
            if parcel is not None:
                at.decide(parcel)
        x, w = total([Mass.restore(*disks[site], late=2) for site in SITES])  # if all crashed now
        assert abs(float(w) - 3) <= 1e-12
        assert torch.allclose(x, torch.full((3,), 6.0).double(), rtol=1e-6)
