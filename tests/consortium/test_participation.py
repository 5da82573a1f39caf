"""A site's part in a study: its node and epochs, its checks, and the roster that it follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.consortia import RECIPE, Clock, accepted, on_disk, rows
from tests.support.peer_studies import said, study_of_two
from tests.support.refusals import expect_refusal

from gossamer.consortium.files import now
from gossamer.consortium.folders import ROSTER, Coordinator, join
from gossamer.consortium.links import Links
from gossamer.consortium.peer import Participation, RosterFollower, epoch_with_graph, gradient_scale, repeated
from gossamer.consortium.roster import Member
from gossamer.consortium.study import Study, pack
from gossamer.training.plan import Plan


def test_a_site_is_ready_or_hears_why_not(tmp_path: Path) -> None:
    clock = Clock(now())
    north = on_disk(tmp_path, "clinic", "mercy", clock=clock)
    rows(tmp_path / "mercy" / "records.csv", 95)
    _, file, _ = pack(north, RECIPE, {"data.features": ["a", "b"]})
    found = Participation.open(file, tmp_path / "mercy", tmp_path, clock.now)
    assert (found.node, found.nodes, found.warnings) == (1, range(1, 2), ())
    assert len(found.plan().privacy.nodes) == 2
    assert found.config.privacy.cap == 8.0
    assert list(found.roster.members(0, found.study.roster.version)) == ["clinic", "mercy"]
    soon = Participation.open(file, tmp_path / "mercy", tmp_path, clock.now + timedelta(days=80))
    assert "ends in 10 days" in soon.warnings[0] or "ends in 9 days" in soon.warnings[0]
    with expect_refusal(key="data", names="file"):
        Participation.open(file, tmp_path / "clinic", tmp_path, clock.now)
    # One that joins after the last round, and one study of strangers.
    request, _ = join(
        north.invite("lab"), listen="none", records=7, folder=tmp_path / "lab", cap=1.0, clock=clock,
        data=str(rows(tmp_path / "lab.csv", 7)),
    )  # fmt: skip
    north.approve("lab", request.read_bytes(), "a file", at_round=4)
    accepted(tmp_path / "lab", north, clock)
    with expect_refusal(key="lab", names="readmission"):
        Participation.open(file, tmp_path / "lab", tmp_path, clock.now)
    request, _ = join(
        north.invite("east"), listen="none", records=9, folder=tmp_path / "east", cap=1.0, clock=clock,
        data=str(rows(tmp_path / "east.csv", 9)),
    )  # fmt: skip
    north.approve("east", request.read_bytes(), "a file", at_round=2)
    accepted(tmp_path / "east", north, clock)
    joiner = Participation.open(file, tmp_path / "east", tmp_path, clock.now)
    assert joiner.first == (2, ("clinic", "east", "mercy"))
    assert (joiner.sites, joiner.node) == (("clinic", "mercy", "east"), 2)  # one more than the study has
    assert joiner.config.data.records == [100, 100, 9]
    assert joiner.plan().privacy.nodes[2].records == 9  # and begins with the same model
    (tmp_path / "other").mkdir()
    strangers = on_disk(tmp_path / "other", "clinic", "mercy", clock=clock)
    _, theirs, _ = pack(strangers, RECIPE, {"data.features": ["a", "b"]})
    with expect_refusal(key="roster", names="consortium"):
        Participation.open(theirs, tmp_path / "mercy", tmp_path, clock.now)


class Recorded(Links):
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
        self.found = Participation.open(file, folder / "mercy", folder / "out", now())
        self.links, self.said = Recorded(), []
        self.roster = RosterFollower(self.found, self.links, self.said.append)

    def accept(self) -> None:
        accepted(self.folder / "mercy", self.north, self.clock)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    with repeated(made.roster.update, 0.02):
        yield made


def soon(true: Callable[[], Any]) -> bool:
    end = time.monotonic() + 60
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
    assert watched.said == ["roster 4 is accepted and in force"]


def test_who_is_revoked_itself_has_no_links_any_more(watched: Watched) -> None:
    watched.north.revoke("mercy")
    watched.accept()
    assert soon(lambda: watched.links.closed == 1)
    assert watched.roster.newest().site("mercy").revoked


def test_what_is_wrong_with_a_roster_is_said_to_the_rounds_and_nobody_keeps_a_link(watched: Watched) -> None:
    watched.found.site.file(ROSTER).write_bytes(b"nothing")
    assert soon(lambda: watched.links.closed == 1)
    with expect_refusal(key="consortium.roster"):
        watched.roster.newest()


class Place:
    def __init__(self, folder: Path):
        self.folder, self.clock = folder, Clock(now())
        self.north = on_disk(folder, "clinic", "lab", "mercy", clock=self.clock)
        self.study: Study
        self.plan: Plan
        self.study, _, self.plan = pack(
            self.north, RECIPE, {"data.features": ["a", "b"], "rounds": 40, "topology.kind": "ring"}
        )

    def approve(self, name: str, at_round: int, records: int = 50) -> None:
        request, _ = join(
            self.north.invite(name), listen="none", records=records, folder=self.folder / name, cap=1.0,
            clock=self.clock,
        )  # fmt: skip
        self.north.approve(name, request.read_bytes(), "a file", at_round=at_round)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_epochs_are_named_by_their_round_and_nobody_is_renumbered(place: Place) -> None:
    study, north = place.study, place.north
    assert study.epochs(north.roster()) == [(0, study.sites)]
    place.approve("wing", at_round=20)
    north.leave("lab", 20)
    place.approve("annex", at_round=10)
    roster = north.roster()
    assert study.epochs(roster) == [
        (0, ("clinic", "lab", "mercy")),
        (10, ("annex", "clinic", "lab", "mercy")),
        (20, ("annex", "clinic", "mercy", "wing")),
    ]
    assert [study.later_epoch(roster, 0, t) and study.later_epoch(roster, 0, t)[0] for t in (9, 10, 25)] == [
        None,
        10,
        20,
    ]
    assert study.later_epoch(roster, 20, 39) is None
    assert study.first_epoch(roster, "wing") == (20, ("annex", "clinic", "mercy", "wing"))
    # Who joins is one more than the study has, whoever else joins.
    assert study.nodes_for("wing") == (*study.sites, "wing")
    assert study.nodes_for("annex") == (*study.sites, "annex")
    assert study.nodes_for("mercy") == study.sites


def test_a_change_without_a_round_is_for_later_studies(place: Place) -> None:
    place.approve("wing", at_round=0)
    place.north.revoke("lab")
    roster = place.north.roster()
    assert place.study.epochs(roster) == [(0, place.study.sites)]
    assert place.study.first_epoch(roster, "wing") is None
    assert list(place.study.members(roster)) == ["clinic", "mercy", "wing"]  # a revoked one has no link


def test_who_leaves_keeps_its_links_until_then_and_may_be_revoked_before(place: Place) -> None:
    place.north.leave("lab", 20)
    assert "lab" in place.study.members(place.north.roster())
    place.north.revoke("lab")
    roster = place.north.roster()
    assert "lab" not in place.study.members(roster)
    assert [start for start, _ in place.study.epochs(roster)] == [
        0,
        20,
    ]  # it is out when it would have been


def test_a_graph_that_cannot_be_is_named_with_its_round(place: Place) -> None:
    assert epoch_with_graph(place.plan, 20, ("a", "b", "c", "d")).topology.nodes == 4
    with expect_refusal(key="nodes", value="2", names="20 a b"):
        epoch_with_graph(place.plan, 20, ("a", "b"))


def test_gradients_count_by_the_records_there_are(place: Place) -> None:
    o = place.plan
    assert gradient_scale(o, 0, [100, 50]) == 1.0
    tables = {**place.study.config.model_dump(exclude_none=True), "weighting": "size"}
    from gossamer.config.layers import whole

    config = whole(tables, "the recipe")
    by_size = Plan.of(config, cache=_without_records(place.north, config))
    # Planned: 100 of 300 records at three nodes, weight 1. Now 100 of 150 at two.
    assert gradient_scale(by_size, 0, [100, 50]) == pytest.approx(4 / 3)


def _without_records(north: Coordinator, config: object) -> object:
    from gossamer.consortium.study import _PublicRows, _without_paths

    _, data, rows = _without_paths(config, None)  # type: ignore[arg-type]
    return _PublicRows(data.without_records(rows, None, 0))


def test_who_joins_needs_one_epsilon_for_all(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy", clock=Clock(now()))
    study, _, _ = pack(north, RECIPE, {"data.features": ["a", "b"], "privacy.epsilon": [4.0, 5.0]})
    with expect_refusal("privacy.epsilon", names="readmission list"):
        study._config_with_joiner(50)


def test_check_says_what_was_checked_and_leaves_nothing(packed_study: Path, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    words = said("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    for part in (
        "signed by the authority that mercy knows",
        "mercy is node 1 of clinic, mercy",
        "100 are declared",
        "test rows: 30, as packed",
        "cap 8   (δ = 0.0001",
    ):
        assert part in words.replace("\n", " ")
    assert set(tmp_path.rglob("*")) == before


def test_check_tries_the_links(packed_study: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    words = said("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0.2")
    assert "link to clinic: down" in words


def test_check_refuses_what_would_pass_the_cap(packed_study: Path, tmp_path: Path) -> None:
    site = tmp_path / "mercy" / "site.toml"
    site.write_text(site.read_text().replace("cap = 8.0", "cap = 1.0"))
    with expect_refusal(key="privacy.cap", value="1", remedy=True):
        said("peer", "check", str(packed_study), "--site", str(site), "--seconds", "0")


def test_check_says_who_comes_and_goes_and_that_one_is_revoked(packed_study: Path, tmp_path: Path) -> None:
    north, clock = Coordinator(tmp_path / "north"), Clock(now())
    words = ("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    north.leave("clinic", 2)
    accepted(tmp_path / "mercy", north, clock)
    assert "from round 2 on: mercy" in said(*words)
    north.revoke("mercy", 3)
    accepted(tmp_path / "mercy", north, clock)
    with expect_refusal(key="mercy", names="peer", remedy=True):
        said(*words)
