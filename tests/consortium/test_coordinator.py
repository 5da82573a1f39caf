from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.consortia import Clock, accepted, on_disk
from tests.support.refusals import expect_refusal

from gossamer.consortium import files
from gossamer.consortium.folders import Coordinator, Site, join
from gossamer.consortium.roster import Left


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def north(tmp_path: Path, clock: Clock) -> Coordinator:
    return Coordinator.init("north", tmp_path / "north", clock)


def request(north: Coordinator, folder: Path, site: str = "mercy", clock: Clock | None = None) -> bytes:
    """A new site's answer to a new invite."""
    invite = north.invite(site)
    path, _ = join(invite, listen="none", records=100, folder=folder, clock=clock or Clock())
    return path.read_bytes()


def test_a_consortium_begins_without_sites_and_with_a_key_of_its_owners_alone(north: Coordinator) -> None:
    assert north.roster().version == 1
    assert north.roster().members() == {}
    assert (north.folder / "authority.key").stat().st_mode & 0o777 == 0o600


def test_a_second_consortium_in_one_place_is_refused(north: Coordinator, tmp_path: Path) -> None:
    before = (north.folder / "authority.key").read_bytes()
    with expect_refusal(key="north", names="exists"):
        Coordinator.init("north", tmp_path / "north")
    assert (north.folder / "authority.key").read_bytes() == before


@pytest.mark.parametrize("name", ["../evil", "North", "a/b", ""])
def test_no_name_leaves_its_folder(north: Coordinator, name: str) -> None:
    for command in (north.invite, lambda n: north.approve(n, b"", "a file")):
        with expect_refusal(key="site", names="letters", remedy=True):
            command(name)
    with expect_refusal(key="consortium", names="letters", remedy=True):
        Coordinator.init(name)


def test_invite_join_approve(north: Coordinator, tmp_path: Path) -> None:
    asked = request(north, tmp_path / "mercy")
    made, mark = north.approve("mercy", asked, "mercy.request")
    assert made.version == 2
    assert list(made.members()) == ["mercy"]
    assert len(mark) == 19
    assert north.roster().content == made.content
    assert sorted(os.listdir(north.folder)) == ["authority.key", "north.roster"]


def test_an_invite_is_good_once(north: Coordinator, tmp_path: Path) -> None:
    asked = request(north, tmp_path / "mercy")
    north.approve("mercy", asked, "mercy.request")
    with expect_refusal(key="invite", names="mercy"):
        north.approve("mercy", asked, "mercy.request")
    north.invite("mercy")  # and an old answer does not fit a new invite
    with expect_refusal(key="mercy.request", names="open"):
        north.approve("mercy", asked, "mercy.request")
    assert north.roster().version == 2


def test_a_new_invite_ends_the_old_one(north: Coordinator, tmp_path: Path) -> None:
    old = request(north, tmp_path / "a")
    new = request(north, tmp_path / "b")
    with expect_refusal(key="mercy.request", names="open"):
        north.approve("mercy", old, "mercy.request")
    north.approve("mercy", new, "mercy.request")


def test_an_invite_is_one_sites(north: Coordinator, tmp_path: Path) -> None:
    asked = request(north, tmp_path / "mercy")
    north.invite("clinic")
    with expect_refusal(key="mercy.request", names="clinic"):
        north.approve("clinic", asked, "mercy.request")


def test_an_invite_ends_by_the_authoritys_clock(north: Coordinator, tmp_path: Path, clock: Clock) -> None:
    asked = request(north, tmp_path / "mercy")
    clock.wait(days=8)
    with expect_refusal(key="invite", names="mercy"):
        north.approve("mercy", asked, "mercy.request")
    with expect_refusal(key="invite", names="ended"):
        join(north.invite("lab", days=0.5), listen="none", records=1, clock=_later(clock))


def _later(clock: Clock) -> Clock:
    later = Clock(clock.now)
    later.wait(days=1)
    return later


def test_who_revoked_a_site_goes_on_without_it(tmp_path: Path, clock: Clock) -> None:
    north = on_disk(tmp_path, "clinic", "mercy", clock=clock)
    made = north.revoke("mercy", 40)
    assert list(made.members()) == ["clinic"]
    assert made.site("mercy").revoked
    with expect_refusal(key="mercy", names="4"):
        north.revoke("mercy")
    with expect_refusal(key="mercy", names="invite", remedy=True):
        north.renew(["mercy"])
    with expect_refusal(key="lab", names="north"):
        north.revoke("lab")
    with expect_refusal(key="--at-round", value="-1"):
        north.revoke("clinic", -1)
    asked = request(north, tmp_path / "mercy-again")
    made, _ = north.approve("mercy", asked, "again", at_round=60)
    assert made.site("mercy").joined.at_round == 60
    assert made.site("mercy").left is None


def test_a_site_that_leaves_can_still_be_revoked(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    since = north.roster().version
    assert list(north.leave("mercy", 40).members(since=since)) == ["clinic", "mercy"]
    with expect_refusal(key="mercy", names="left"):
        north.leave("mercy", 50)
    made = north.revoke("mercy")
    assert list(made.members(since=since)) == ["clinic"]
    assert made.site("mercy").left == Left(version=since + 1, at_round=40, revoked=True)  # out when it would have been


def test_who_lost_his_key_keeps_his_place(tmp_path: Path, clock: Clock) -> None:
    north = on_disk(tmp_path, "clinic", "mercy", clock=clock)
    before = north.roster().site("mercy")
    asked = request(north, tmp_path / "mercy-again")
    made, _ = north.approve("mercy", asked, "again", at_round=60)
    assert made.site("mercy").joined == before.joined
    assert made.site("mercy").public_key != before.public_key


def test_renewal_is_for_the_same_keys_and_only_where_it_is_time(tmp_path: Path, clock: Clock) -> None:
    north = on_disk(tmp_path, "clinic", "mercy", clock=clock)
    before = north.roster()
    assert north.renew() == (before, []) or north.renew()[1] == []
    assert north.roster().version == before.version
    clock.wait(days=80)
    made, due = north.renew()
    assert due == ["clinic", "mercy"]
    assert made.warnings(clock.now) == []
    for site in due:
        assert made.members()[site].public_key == before.members()[site].public_key
        assert made.members()[site].fingerprint != before.members()[site].fingerprint
    accepted(tmp_path / "mercy", north, clock)
    assert Site.read(tmp_path / "mercy").roster().content == made.content
    assert north.renew(["mercy"])[1] == ["mercy"]


def test_keys_that_lie_open_or_do_not_fit_are_refused(north: Coordinator, tmp_path: Path) -> None:
    other = Coordinator.init("south", tmp_path / "south")
    (north.folder / "authority.key").chmod(0o644)
    with expect_refusal(key="authority.key", names="others"):
        Coordinator(north.folder)
    (north.folder / "authority.key").chmod(0o600)
    north.roster_file.write_bytes(other.roster_file.read_bytes())
    with expect_refusal(key="authority.key", names="signed"):
        Coordinator(north.folder)


def test_a_roster_that_was_changed_on_disk_is_not_built_upon(north: Coordinator) -> None:
    path = north.roster_file
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with expect_refusal(key="north.roster", names="authority"):
        north.revoke("mercy")
    path.unlink()
    with expect_refusal(key="north", names="0"):
        north.roster()


def test_a_stop_between_writes_changes_nothing(
    north: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(north, tmp_path / "mercy")

    def stopped(path: Path, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        north.approve("mercy", asked, "mercy.request")
    monkeypatch.undo()
    assert north.roster().version == 1
    assert north.approve("mercy", asked, "mercy.request")[0].version == 2  # the invite is still good
