from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.consortia import Clock, on_disk

from gossamer.consortium import files
from gossamer.consortium.authority import make_site_key, private_pem
from gossamer.consortium.site import Site
from gossamer.errors import UserError


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
    assert Site.read(mercy).cap is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('rosters = "ask"', 'rosters = "always"', "rosters = 'always' must be 'auto' or 'ask'"),
        ('durable = "on"', "durable = true", "durable = true must be 'on' or 'off'"),
        ("cap = 8.0", "cap = -1.0", "cap = -1.0 must be greater than 0"),
        ("cap = 8.0", "cap = 'much'", "cap = 'much' must be a number"),
        ("cap = 8.0", "", "cap is missing"),
        ('listen = "none"', 'listen = "7443"', "must be host:port"),
        ('site = "mercy"', 'site = "Mercy"', "small letters"),
        ('site = "mercy"', 'site = "mercy"\nsecret = 1', "secret is not a key"),
        ('durable = "on"', 'durabel = "on"', "did you mean durable"),
        ('site = "mercy"', 'site = "mercy', "not valid TOML"),
        ('authority = "', 'authority = "x', "authority"),
    ],
)
def test_mistakes_in_site_toml_are_a_sentence_with_the_key(mercy: Path, old: str, new: str, why: str) -> None:
    rewrite(mercy, old, new)
    with pytest.raises(UserError, match=why) as said:
        Site.read(mercy)
    assert str(mercy / "site.toml") in str(said.value)


def test_paths_are_relative_to_the_file(mercy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(mercy, str(mercy / "records.csv"), "records.csv")
    monkeypatch.chdir("/")
    assert Site.read(mercy).data == mercy / "records.csv"
    assert Site.read(mercy).check(Clock().now) == []


def test_a_site_without_a_roster_is_told_what_to_do(mercy: Path) -> None:
    (mercy / "consortium.roster").unlink()
    with pytest.raises(UserError, match="gossamer pki accept"):
        Site.read(mercy).roster()


def test_a_roster_of_others_in_its_place_is_refused(mercy: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = on_disk(tmp_path / "other", "mercy")
    (mercy / "consortium.roster").write_bytes(other.roster().content)
    with pytest.raises(UserError, match="another consortium's roster"):
        Site.read(mercy).check(Clock().now)


def test_a_key_of_others_or_an_open_one_is_refused(mercy: Path) -> None:
    (mercy / "site.key").chmod(0o640)
    with pytest.raises(UserError, match="can be read by others"):
        Site.read(mercy).check(Clock().now)
    files.write(mercy / "site.key", private_pem(make_site_key()), 0o600)
    with pytest.raises(UserError, match="is not the key that the roster has of mercy"):
        Site.read(mercy).check(Clock().now)


def test_certificates_warn_and_end(mercy: Path) -> None:
    clock = Clock()
    clock.wait(days=77)
    assert "ends in 13 days" in Site.read(mercy).check(clock.now)[0]
    clock.wait(days=14)
    with pytest.raises(UserError, match=r"ended on 30 May 2026.*pki renew mercy"):
        Site.read(mercy).check(clock.now)


def test_records_must_be_there(mercy: Path) -> None:
    (mercy / "records.csv").unlink()
    with pytest.raises(UserError, match=r"data = .* is not a file"):
        Site.read(mercy).check(Clock().now)
