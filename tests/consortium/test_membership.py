from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.consortia import Clock, accepted, on_disk

from gossamer.consortium import files, membership
from gossamer.consortium.authority import make_site_key, private_pem
from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.site import Site
from gossamer.errors import UserError


def yes(changes: object) -> bool:
    return True


def accept(folder: Path, content: bytes, agree: object = yes) -> object:
    return membership.accept(folder / "site.toml", content, "the roster", agree, Clock())


def test_the_key_never_leaves(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    key = (tmp_path / "mercy" / "site.key").read_bytes()
    assert (tmp_path / "mercy" / "site.key").stat().st_mode & 0o777 == 0o600
    secret = Site.read(tmp_path / "mercy").key().private_numbers().private_value
    inner = key.splitlines()[1]
    for path in [*north.folder.iterdir(), tmp_path / "mercy" / "mercy.request"]:
        assert inner not in path.read_bytes()
        assert f"{secret:x}".encode() not in path.read_bytes()


def test_a_site_has_all_it_needs_after_accepting(tmp_path: Path) -> None:
    on_disk(tmp_path, "clinic", "mercy")
    assert sorted(os.listdir(tmp_path / "mercy")) == [
        "authority.crt", "consortium.roster", "mercy.request", "site.crt", "site.key", "site.toml"
    ]  # fmt: skip
    found = Site.read(tmp_path / "mercy")
    assert found.roster().version == 3
    assert (found.listen, found.asked.rosters, found.asked.durable, found.asked.cap) == (
        None,
        "ask",
        "on",
        8.0,
    )


def test_site_toml_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    odd = tmp_path / 'a "quoted"\\ name.csv'
    odd.touch()
    membership.join(
        north.invite("mercy"), listen="mercy.example.org:7443", records=5, folder=tmp_path / "m", data=str(odd), cap=2,
        clock=Clock(),
    )  # fmt: skip
    found = Site.read(tmp_path / "m")
    assert found.data == odd
    assert (found.listen, found.asked.cap) == ("0.0.0.0:7443", 2.0)


@pytest.mark.parametrize(
    ("listen", "records", "why"),
    [("here", 1, "host:port"), ("none", 0, "--records 0"), ("none", -1, "--records -1")],
)
def test_a_mistake_makes_no_folder(tmp_path: Path, listen: str, records: int, why: str) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    with pytest.raises(UserError, match=why):
        membership.join(
            north.invite("mercy"), listen=listen, records=records, folder=tmp_path / "m", clock=Clock()
        )
    assert not (tmp_path / "m").exists()


def test_joining_never_overwrites_a_key(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    before = (tmp_path / "mercy" / "site.key").read_bytes()
    with pytest.raises(UserError, match="exists"):
        membership.join(
            north.invite("mercy"), listen="none", records=1, folder=tmp_path / "mercy", clock=Clock()
        )
    assert (tmp_path / "mercy" / "site.key").read_bytes() == before


def test_nothing_is_accepted_without_the_operators_word(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    new = north.revoke("clinic").content
    asked: list[object] = []
    with pytest.raises(UserError, match="roster 4 was not accepted; roster 3 stays"):
        accept(tmp_path / "mercy", new, asked.append)
    assert asked == [["clinic is revoked, its links go down at once, and it is out"]]
    assert Site.read(tmp_path / "mercy").roster().version == 3
    accept(tmp_path / "mercy", new)
    assert Site.read(tmp_path / "mercy").roster().version == 4


def test_an_old_roster_is_not_accepted_again(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    old = north.roster().content
    north.revoke("clinic")
    accepted(tmp_path / "mercy", north, Clock())
    with pytest.raises(UserError, match="roster 3 is older than roster 4"):
        accept(tmp_path / "mercy", old)
    assert "clinic" not in Site.read(tmp_path / "mercy").roster().members()


def test_the_same_roster_again_asks_nobody_and_mends_the_certificate(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    (tmp_path / "mercy" / "site.crt").write_text("lost")
    accept(tmp_path / "mercy", north.roster().content, lambda changes: pytest.fail("nothing to agree to"))
    assert (tmp_path / "mercy" / "site.crt").read_text() == north.roster().site("mercy").certificate


def test_another_consortiums_roster_is_not_accepted(tmp_path: Path) -> None:
    on_disk(tmp_path, "mercy")
    other = on_disk(tmp_path / "elsewhere", "mercy") if (tmp_path / "elsewhere").mkdir() is None else None
    with pytest.raises(UserError, match="another consortium's roster"):
        accept(tmp_path / "mercy", other.roster().content)


def test_a_roster_with_another_key_in_the_sites_name_is_alarming(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    thief, _ = membership.join(
        north.invite("mercy"), listen="none", records=1, folder=tmp_path / "thief", clock=Clock()
    )
    made, _ = north.approve("mercy", thief.read_bytes(), "a file")
    with pytest.raises(UserError, match="somebody else answered the invite"):
        accept(tmp_path / "mercy", made.content)


def test_a_first_roster_must_have_the_site(tmp_path: Path) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    membership.join(north.invite("mercy"), listen="none", records=1, folder=tmp_path / "mercy", clock=Clock())
    with pytest.raises(UserError, match="does not have mercy yet"):
        accept(tmp_path / "mercy", north.roster().content)
    assert not (tmp_path / "mercy" / "consortium.roster").exists()


def test_a_stop_between_writes_is_mended_by_accepting_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    north = on_disk(tmp_path, "mercy", clock=clock)
    clock.wait(days=80)
    new = north.renew()[0].content
    real, seen = files.write, []

    def stopped(path: Path, content: bytes, mode: int = 0o644) -> None:
        seen.append(path.name)
        if path.name == "consortium.roster":
            raise KeyboardInterrupt
        real(path, content, mode)

    monkeypatch.setattr(files, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        accept(tmp_path / "mercy", new)
    monkeypatch.undo()
    assert seen[-1] == "consortium.roster"
    (tmp_path / "mercy" / "records.csv").touch()
    with pytest.raises(UserError, match="is not the certificate that the roster has"):
        Site.read(tmp_path / "mercy").check(clock.now)
    accept(tmp_path / "mercy", new)
    assert Site.read(tmp_path / "mercy").check(clock.now) == []


def test_a_site_whose_own_key_was_swapped_cannot_accept(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    files.write(tmp_path / "mercy" / "site.key", private_pem(make_site_key()), 0o600)
    with pytest.raises(UserError, match="another key of mercy"):
        accept(tmp_path / "mercy", north.renew(["mercy"])[0].content)


def test_a_roster_over_a_link_waits_or_is_taken_as_site_toml_says(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    path, old = tmp_path / "mercy" / "site.toml", north.roster().content
    new = north.revoke("clinic").content
    assert membership.offered(path, old, "a link") == (None, "roster 3 is held already")
    found, said = membership.offered(path, new, "a link")
    assert found is None
    assert "waits for a word: gossamer pki accept" in said
    assert Site.read(path).roster().version == 3
    assert (tmp_path / "mercy" / "roster.waiting").read_bytes() == new
    path.write_text(path.read_text().replace('rosters = "ask"', 'rosters = "auto"'))
    found, _ = membership.offered(path, new, "a link")
    assert found is not None
    assert Site.read(path).roster().version == 4
    with pytest.raises(UserError, match="is older"):
        membership.offered(path, old, "a link")
    with pytest.raises(UserError, match="not what the consortium's authority signed"):
        membership.offered(path, new.replace(b'"records": 100', b'"records": 999'), "a link")
