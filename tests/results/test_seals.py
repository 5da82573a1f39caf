"""Seals: what a run's key has signed stays as it was, or is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.accounting.chain import digest
from gossamer.errors import UserError
from gossamer.results import seals
from gossamer.results.seals import KEY, SEALS, Sealer, read_seals

HEADS = {0: (2, "aa"), 1: (3, "bb")}


@pytest.fixture
def sealed(tmp_path: Path) -> tuple[Path, str]:
    sealer = Sealer.create(tmp_path, "mine")
    sealer.seal(seals.BEGIN, 0, {}, {"config.toml": "00"})
    sealer.seal(seals.CHECKPOINT, 5, HEADS, {})
    sealer.seal(seals.END, 9, {0: (4, "cc"), 1: (4, "dd")}, {}, certificate="ee")
    return tmp_path, sealer.public


def test_what_was_signed_is_read_back(sealed: tuple[Path, str]) -> None:
    found, head, rest = read_seals(sealed[0], "mine", sealed[1])
    assert [one["kind"] for one in found] == ["begin", "checkpoint", "end"]
    assert seals.counts(found[1], [0, 1]) == {0: 2, 1: 3}
    assert seals.counts(found[2], [1, 0]) == {0: 4, 1: 4}
    assert found[1]["heads"] == seals.heads_digest(["aa", "bb"])
    assert (head, rest) == (digest((sealed[0] / SEALS).read_bytes().splitlines(keepends=True)[-1]), b"")


def test_the_key_is_its_owners_alone_and_goes(sealed: tuple[Path, str]) -> None:
    path = sealed[0] / KEY
    assert path.stat().st_mode & 0o777 == 0o600
    Sealer.resume(sealed[0], "mine", sealed[1]).destroy()
    assert not path.exists()
    with pytest.raises(UserError, match=r"run\.key is missing or damaged.*run it anew"):
        Sealer.resume(sealed[0], "mine", sealed[1])


def test_a_stopped_run_signs_on_and_a_torn_seal_was_none(sealed: tuple[Path, str]) -> None:
    path = sealed[0] / SEALS
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 3, "ru')
    Sealer.resume(sealed[0], "mine", sealed[1]).seal(seals.END, 9, HEADS, {})
    assert path.read_bytes().startswith(whole)
    assert [one["number"] for one in read_seals(sealed[0], "mine", sealed[1])[0]] == [0, 1, 2, 3]


def chained(lines: list[bytes]) -> bytes:
    """The lines with hashes that fit: what anybody can do without the key."""
    out = [lines[0]]
    for line in lines[1:]:
        payload = line.rpartition(b',"prev":"')[0]
        out.append(payload + b',"prev":"' + digest(out[-1]).encode() + b'"}\n')
    return b"".join(out)


def test_who_has_no_key_can_change_nothing(sealed: tuple[Path, str], tmp_path: Path) -> None:
    path, lines = sealed[0] / SEALS, (sealed[0] / SEALS).read_bytes().splitlines(keepends=True)
    for damaged, what in (
        (
            [*lines[:2], lines[2].replace(b'"round": 5', b'"round": 4'), lines[3]],
            "not signed by this run's key",
        ),
        ([*lines[:2], lines[3]], "not where it was signed"),
        ([*lines[:2], lines[3], lines[2]], "not where it was signed"),
        ([lines[0], *lines[1:], lines[3]], "not where it was signed"),
        ([lines[0].replace(b"mine", b"ours"), *lines[1:]], "belongs to another run"),
        ([*lines[:3], b'{"number": 2,"prev":"' + b"0" * 64 + b'"}\n'], "not signed"),
    ):
        path.write_bytes(chained(damaged))
        with pytest.raises(UserError, match=what):
            read_seals(sealed[0], "mine", sealed[1])
    other = tmp_path / "other"
    other.mkdir()
    key = Sealer.create(other, "mine").public
    path.write_bytes(b"".join(lines))
    with pytest.raises(UserError, match="not signed by this run's key"):
        read_seals(sealed[0], "mine", key)
    with pytest.raises(UserError, match="not the key that"):
        Sealer.resume(sealed[0], "mine", key)
    with pytest.raises(UserError, match="not a public key"):
        read_seals(sealed[0], "mine", "no hex")
