"""Whatever arrives is used or refused in one sentence; who is heard, suspect, ahead or far behind."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import pytest
import torch
from tests.support.simulated_links import Network
from tests.support.spoilt_frames import changed, mutated

from gossamer.consortium.contacts import Contacts, Pace
from gossamer.consortium.frames import Decisions, Frame, Place
from gossamer.consortium.links import Arrival
from gossamer.consortium.mass import MAX_WAITING, Mass

STUDY = "ab" * 32
LAYOUT = (torch.zeros(1, 2), torch.zeros(1, 1, dtype=torch.float64))
CONTENT = (torch.ones(2), torch.full((1,), 0.5, dtype=torch.float64))
SHARED = Frame(
    kind="share",
    study=STUDY,
    epoch=1,
    sender="b",
    receiver="a",
    place=Place(5, 0),
    incarnation=1,
    following=1,
    made=Place(5, 0),
    content=CONTENT,
)


def contacts() -> Contacts:
    network = Network(["a", "b", "c"])
    mass = Mass("a", 1, late=2, start=5)
    mass.begin(Place(5, 0), 0, LAYOUT)
    mass.mark_written()
    made = Contacts(
        study=STUDY, epoch=1, sites=("a", "b", "c"), mass=mass, links=network.links("a"), pace=Pace(deadline=1.0, late=2),
        weighted=True, model=lambda: torch.zeros(1, 2), clock=network.clock,
    )  # fmt: skip
    made.open_channel(0, LAYOUT)
    return made


def test_a_share_is_taken_and_its_sender_heard() -> None:
    found = contacts()
    found.handle(Arrival("b", SHARED.pack()))
    assert found.refused == 0
    assert found["b"].heard == Place(5, 0)
    assert found["b"].passed is None  # nothing but the parcel itself
    assert len(found.mass.inbox) == 1
    assert found.reaches("b")
    assert not found.reaches("c")  # never heard: its share is kept


def test_who_is_in_a_later_epoch_is_not_waited_for_and_nothing_of_it_is_used() -> None:
    found = contacts()
    found.handle(Arrival("b", SHARED.pack()))
    assert found.is_expected("b")
    assert found.ahead is None
    found.handle(Arrival("b", changed(SHARED, epoch=7, place=Place(9, 0), sequence=0).pack()))
    assert found.ahead == (7, 9)
    assert found.is_away("b")
    assert not found.is_expected("b")
    assert not found.reaches("b")
    assert len(found.mass.inbox) == 1
    joins = changed(SHARED, kind="ask", sender="eve", epoch=7, content=(), following=0)
    found.handle(Arrival("eve", joins.pack()))  # it waits for its epoch: nothing is wrong with that
    assert found.refused == 0


def test_who_lags_in_an_earlier_epoch_is_told_where_the_others_are() -> None:
    found = contacts()
    found.handle(Arrival("b", changed(SHARED, epoch=0).pack()))
    assert found.refused == 1
    assert found["b"].owes_greeting


def test_a_site_that_the_roster_has_no_longer_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    found = contacts()
    found.handle(Arrival("b", SHARED.pack()))
    assert found.states() == {"b": "up", "c": "up"}
    monkeypatch.setattr(found.links, "states", lambda: {"c": "up"})
    assert found.states() == {"b": "down", "c": "up"}
    assert found.is_away("b")
    assert not found.reaches("b")


@pytest.mark.parametrize(
    ("frame", "sender", "why"),
    [
        (changed(SHARED, sender="eve"), "eve", "not a site of this epoch"),
        (SHARED, "c", "another site"),
        (changed(SHARED, epoch=0), "b", "epoch 0, which is over"),
        (changed(SHARED, study="cd" * 32), "b", "another study"),
        (changed(SHARED, content=(torch.full((2,), torch.nan), CONTENT[1])), "b", "NaN"),
        (changed(SHARED, content=(CONTENT[0], torch.zeros(1, dtype=torch.float64))), "b", "its weight is 0"),
        (changed(SHARED, content=(CONTENT[0], torch.full((1,), 3.5, dtype=torch.float64))), "b", "at most 3"),
        (changed(SHARED, content=CONTENT[:1]), "b", "shapes"),
        (changed(SHARED, decisions=Decisions(1, (4,))), "b", "never made"),
    ],
)
def test_what_is_refused_is_logged_in_one_sentence_and_not_used(
    frame: Frame, sender: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = contacts()
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        found.handle(Arrival(sender, frame.pack()))
    assert found.refused == 1
    assert len(caplog.messages) == 1
    assert why in caplog.messages[0]
    assert "\n" not in caplog.messages[0]
    assert found.mass.inbox == []
    assert found["b"].heard is None


def test_garbage_is_refused_or_is_what_a_member_could_have_sent() -> None:
    found, pick = contacts(), random.Random(0)
    logging.getLogger("gossamer.peers").setLevel(logging.ERROR)
    raw = SHARED.pack()
    for _ in range(2000):
        found.handle(Arrival("b", mutated(raw, pick)[: pick.choice((len(raw), pick.randrange(len(raw))))]))
    logging.getLogger("gossamer.peers").setLevel(logging.NOTSET)
    assert found.refused > 1000
    assert len(found.mass.inbox) <= MAX_WAITING
    for parcel in found.mass.inbox:
        assert 0 < float(parcel.content[1]) <= 3
        assert bool(parcel.content[0].isfinite().all())


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_million_fuzzed_frames_leave_memory_and_log_bounded(tmp_path: Path) -> None:
    """Cut and changed by a member: with the log on disk, as a site has it."""
    found, pick, raw = contacts(), random.Random(0), SHARED.pack()
    log, file = logging.getLogger("gossamer.peers"), logging.FileHandler(tmp_path / "log")
    log.addHandler(file)
    seen = []
    try:
        for k in range(1_000_000):
            if k in (100_000, 999_999):
                seen.append(resident())
            found.handle(Arrival("b", mutated(raw, pick)))
    finally:
        log.removeHandler(file)
        file.close()
    assert len(found.mass.inbox) <= MAX_WAITING  # of one sender, whatever it sends
    assert seen[1] - seen[0] < 8e6
    assert len((tmp_path / "log").read_text().splitlines()) < 1000


def test_a_newer_epoch_is_no_fault_and_not_used() -> None:
    found = contacts()
    found.handle(Arrival("b", changed(SHARED, epoch=2).pack()))
    assert found.refused == 0
    assert found.mass.inbox == []
    assert found["b"].drained


def test_parcels_of_an_exchange_that_has_not_begun_wait_in_a_bounded_place() -> None:
    found = contacts()
    for number in range(9):
        made = changed(SHARED, channel=2, sequence=number, following=number + 1)
        found.handle(Arrival("b", made.pack()))
    assert found.mass.inbox == []
    assert len(found["b"].early) == 4
    found.open_channel(2, LAYOUT)
    assert [parcel.sequence for parcel in found.mass.inbox] == [5, 6, 7, 8]  # the others will come again


def test_offers_of_the_past_are_ignored_and_those_of_the_future_bounded() -> None:
    found = contacts()
    for at in range(3, 20):
        offer = changed(SHARED, kind="offer", place=Place(at, 0), made=Place(at, 0), following=0)
        found.handle(Arrival("b", offer.pack()))
    assert sorted(found["b"].offers) == [Place(at, 0) for at in (5, 6, 7, 8)]


def test_suspects_are_heard_again_when_they_are_near() -> None:
    found = contacts()
    found.mark_suspect(["b"])
    hello = changed(SHARED, kind="hello", content=(), following=0)
    found.handle(Arrival("b", changed(hello, place=Place(2, 0), made=Place(2, 0)).pack()))
    assert found["b"].suspect  # three rounds behind: it would be waited for in vain
    assert found.states() == {"b": "suspect", "c": "up"}
    found.handle(Arrival("b", changed(hello, place=Place(4, 0), made=Place(4, 0)).pack()))
    assert not found["b"].suspect
    assert found.left_behind() is None
    found.handle(Arrival("b", changed(hello, place=Place(8, 0), made=Place(8, 0)).pack()))
    assert found.left_behind() == (8, ["b"])
    assert not found.reaches("b")
