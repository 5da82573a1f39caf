"""A roster that is accepted while a site takes part reaches its links within seconds, whatever the rounds do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.consortia import Clock, accepted
from tests.support.peer_studies import study_of_two

from gossamer.consortium.accepted import AcceptedRoster
from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.links import Member, NoLinks
from gossamer.consortium.names import now
from gossamer.consortium.ready import ready
from gossamer.errors import UserError


class Recorded(NoLinks):
    def __init__(self) -> None:
        self.members: list[list[str]] = []
        self.closed = 0

    def update(self, members: Iterable[Member]) -> None:
        self.members.append([member.name for member in members])

    def close(self) -> None:
        self.closed += 1


class Watched:
    def __init__(self, folder: Path):
        self.clock, self.folder = Clock(now()), folder
        file = study_of_two(folder)
        self.north = Coordinator(folder / "north", self.clock)
        (folder / "out").mkdir()
        self.found = ready(file, folder / "mercy", folder / "out", now())
        self.links, self.said = Recorded(), []
        self.roster = AcceptedRoster(self.found, self.links, self.said.append, every=0.02)

    def accept(self) -> None:
        accepted(self.folder / "mercy", self.north, self.clock)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.roster.close()


def soon(true: Callable[[], Any]) -> bool:
    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(true())


def test_a_revoked_site_is_cut_off_without_a_round(watched: Watched) -> None:
    assert watched.roster.newest().version == 3
    watched.north.revoke("clinic")
    time.sleep(0.1)
    assert watched.links.members == []  # nothing holds before the operator's word
    watched.accept()
    assert soon(lambda: watched.links.members == [["mercy"]])
    assert watched.roster.newest().version == 4
    assert watched.said == ["roster 4 is accepted and holds"]


def test_who_is_revoked_itself_has_no_links_any_more(watched: Watched) -> None:
    watched.north.revoke("mercy")
    watched.accept()
    assert soon(lambda: watched.links.closed == 1)
    assert watched.roster.newest().site("mercy").revoked


def test_what_is_wrong_with_a_roster_is_said_to_the_rounds_and_nobody_keeps_a_link(watched: Watched) -> None:
    watched.found.site.roster_file.write_bytes(b"nothing")
    assert soon(lambda: watched.links.closed == 1)
    with pytest.raises(UserError, match=r"consortium\.roster"):
        watched.roster.newest()
