from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.consortia import Clock, accepted, on_disk
from tests.support.refusals import expect_refusal

from gossamer.consortium import files
from gossamer.consortium.authority import make_site_key
from gossamer.consortium.folders import Coordinator, Site, accept, join
from gossamer.results.signatures import private_pem


@pytest.fixture
def mercy(tmp_path: Path) -> Path:
    on_disk(tmp_path, "clinic", "mercy")
    (tmp_path / "mercy" / "records.csv").write_text("a,y\n1,0\n")
    return tmp_path / "mercy"


def rewrite(folder: Path, old: str, new: str) -> None:
    path = folder / "site.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_site_that_is_well_has_nothing_to_say(mercy: Path) -> None:
    found = Site.read(mercy)
    assert found == Site.read(mercy / "site.toml")
    assert found.check(Clock().now) == []
    assert found.name == "mercy"
    assert found.test is None


def test_a_cap_holds_unless_the_records_are_public(mercy: Path) -> None:
    assert Site.read(mercy).cap == 8.0
    rewrite(mercy, "cap = 8.0", "public = true\ncap = 8.0")
    assert Site.read(mercy).public


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cap = 8.0", "cap = -1.0", "cap -1.0 0"),
        ("cap = 8.0", "cap = 'much'", "cap much"),
        ("cap = 8.0", "", "site.toml missing"),
        ('listen = "none"', 'listen = "7443"', "listen 7443"),
        ('site = "mercy"', 'site = "Mercy"', "site Mercy"),
        ('site = "mercy"', 'site = "mercy"\nsecret = 1', "site.toml secret"),
        ("cap = 8.0", "cap = 8.0\nlisten_at = 1", "site.toml listen"),
        ('site = "mercy"', 'site = "mercy', "site.toml TOML"),
        ('authority = "', 'authority = "x', "authority"),
    ],
)
def test_mistakes_in_site_toml_are_a_sentence_with_the_key(mercy: Path, old: str, new: str, why: str) -> None:
    rewrite(mercy, old, new)
    with expect_refusal(names=why) as said:
        Site.read(mercy)
    assert str(mercy / "site.toml") in str(said.value)


def test_paths_are_relative_to_the_file(mercy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(mercy, str(mercy / "records.csv"), "records.csv")
    monkeypatch.chdir("/")
    assert Site.read(mercy).data_file() == mercy / "records.csv"
    assert Site.read(mercy).check(Clock().now) == []


def test_a_site_without_a_roster_is_told_what_to_do(mercy: Path) -> None:
    (mercy / "consortium.roster").unlink()
    with expect_refusal(key="consortium.roster", names="accept", remedy=True):
        Site.read(mercy).roster()


def test_a_roster_of_others_in_its_place_is_refused(mercy: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = on_disk(tmp_path / "other", "mercy")
    (mercy / "consortium.roster").write_bytes(other.roster().content)
    with expect_refusal(key="consortium.roster"):
        Site.read(mercy).check(Clock().now)


def test_a_key_of_others_or_an_open_one_is_refused(mercy: Path) -> None:
    (mercy / "site.key").chmod(0o640)
    with expect_refusal(key="site.key", names="others"):
        Site.read(mercy).check(Clock().now)
    files.write(mercy / "site.key", private_pem(make_site_key()), 0o600)
    with expect_refusal(key="site.key", names="mercy"):
        Site.read(mercy).check(Clock().now)


def test_certificates_warn_and_end(mercy: Path) -> None:
    clock = Clock()
    clock.wait(days=77)
    assert "ends in 13 days" in Site.read(mercy).check(clock.now)[0]
    clock.wait(days=14)
    with expect_refusal(key="certificate", names="30 2026", remedy=True):
        Site.read(mercy).check(clock.now)


def test_records_must_be_there(mercy: Path) -> None:
    (mercy / "records.csv").unlink()
    with expect_refusal(key="data", names="file"):
        Site.read(mercy).check(Clock().now)


def yes(changes: object) -> bool:
    return True


def accept_at(folder: Path, content: bytes, agree: object = yes) -> object:
    return accept(folder / "site.toml", content, "the roster", agree, Clock())


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
    files = ["consortium.roster", "mercy.request", "site.key", "site.toml"]
    assert sorted(os.listdir(tmp_path / "mercy")) == files
    found = Site.read(tmp_path / "mercy")
    assert found.roster().version == 3
    assert (found.listener, found.cap) == (None, 8.0)


def test_site_toml_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    odd = tmp_path / 'a "quoted"\\ name.csv'
    odd.touch()
    join(
        north.invite("mercy"), listen="mercy.example.org:7443", records=5, folder=tmp_path / "m", data=str(odd), cap=2,
        clock=Clock(),
    )  # fmt: skip
    found = Site.read(tmp_path / "m")
    assert found.data_file() == odd
    assert (found.listen, found.cap) == ("0.0.0.0:7443", 2.0)


@pytest.mark.parametrize(
    ("listen", "records", "why"),
    [("here", 1, "--listen here"), ("none", 0, "--records 0"), ("none", -1, "--records -1 1")],
)
def test_a_mistake_makes_no_folder(tmp_path: Path, listen: str, records: int, why: str) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    with expect_refusal(names=why):
        join(north.invite("mercy"), listen=listen, records=records, folder=tmp_path / "m", clock=Clock())
    assert not (tmp_path / "m").exists()


def test_joining_never_overwrites_a_key(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    before = (tmp_path / "mercy" / "site.key").read_bytes()
    with expect_refusal(key="mercy", names="exists"):
        join(north.invite("mercy"), listen="none", records=1, folder=tmp_path / "mercy", clock=Clock())
    assert (tmp_path / "mercy" / "site.key").read_bytes() == before


def test_nothing_is_accepted_without_the_operators_word(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    new = north.revoke("clinic").content
    asked: list[object] = []
    with expect_refusal(key="roster", value="4", names="3", remedy=True):
        accept_at(tmp_path / "mercy", new, asked.append)
    assert asked == [["clinic is revoked, its links go down at once, and it is out"]]
    assert Site.read(tmp_path / "mercy").roster().version == 3
    accept_at(tmp_path / "mercy", new)
    assert Site.read(tmp_path / "mercy").roster().version == 4


def test_an_old_roster_is_not_accepted_again(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    old = north.roster().content
    north.revoke("clinic")
    accepted(tmp_path / "mercy", north, Clock())
    with expect_refusal(key="roster", value="3", names="4"):
        accept_at(tmp_path / "mercy", old)
    assert "clinic" not in Site.read(tmp_path / "mercy").roster().members()


def test_the_same_roster_again_asks_nobody(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    accept_at(tmp_path / "mercy", north.roster().content, lambda changes: pytest.fail("nothing to agree to"))


def test_another_consortiums_roster_is_not_accepted(tmp_path: Path) -> None:
    on_disk(tmp_path, "mercy")
    other = on_disk(tmp_path / "elsewhere", "mercy") if (tmp_path / "elsewhere").mkdir() is None else None
    with expect_refusal(key="roster", names="consortium"):
        accept_at(tmp_path / "mercy", other.roster().content)


def test_a_roster_with_another_key_in_the_sites_name_is_alarming(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy")
    thief, _ = join(north.invite("mercy"), listen="none", records=1, folder=tmp_path / "thief", clock=Clock())
    made, _ = north.approve("mercy", thief.read_bytes(), "a file")
    with expect_refusal(key="roster", names="somebody"):
        accept_at(tmp_path / "mercy", made.content)


def test_a_first_roster_must_have_the_site(tmp_path: Path) -> None:
    north = Coordinator.init("north", tmp_path / "north", Clock())
    join(north.invite("mercy"), listen="none", records=1, folder=tmp_path / "mercy", clock=Clock())
    with expect_refusal(key="roster", names="mercy"):
        accept_at(tmp_path / "mercy", north.roster().content)
    assert not (tmp_path / "mercy" / "consortium.roster").exists()


def test_a_site_whose_own_key_was_swapped_cannot_accept(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "mercy")
    files.write(tmp_path / "mercy" / "site.key", private_pem(make_site_key()), 0o600)
    with expect_refusal(key="roster", names="mercy"):
        accept_at(tmp_path / "mercy", north.renew(["mercy"])[0].content)
