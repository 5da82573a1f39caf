from __future__ import annotations

import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortia import START, Consortium
from tests.support.refusals import expect_refusal

from gossamer.consortium.authority import issue, make_authority, make_site_key, pem
from gossamer.consortium.files import write_signed
from gossamer.consortium.roster import Joined, Left, Roster, check_successor, differences, sign_roster
from gossamer.errors import UserError

NORTH = Consortium.of("clinic", "mercy")
CONTENT = NORTH.newest.content


def read(content: bytes, authority: str | None = None) -> Roster:
    return Roster.read(content, "a roster", authority)


def test_a_roster_is_read_back() -> None:
    found = read(CONTENT, NORTH.newest.fingerprint)
    assert (found.consortium, found.version) == ("north", 2)
    assert [site.name for site in found.sites] == ["clinic", "mercy"]
    assert found.history == [NORTH.versions[0].digest]


def test_members_are_what_transport_pins() -> None:
    members = NORTH.newest.members()
    assert list(members) == ["clinic", "mercy"]
    mercy = members["mercy"]
    assert mercy.fingerprint == mercy.parsed.fingerprint(SHA256()).hex()
    assert (mercy.records, mercy.address) == (100, None)


def test_every_changed_byte_is_refused() -> None:
    for place in range(len(CONTENT)):
        changed = bytearray(CONTENT)
        changed[place] ^= 1
        with pytest.raises(UserError):
            read(bytes(changed))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_no_other_content_is_a_roster(place: int, put: bytes, cut: int) -> None:
    changed = CONTENT[:place] + put + CONTENT[place + cut :]
    if changed != CONTENT:
        with pytest.raises(UserError):
            read(changed)


def test_another_authority_of_the_same_name_is_refused() -> None:
    other = Consortium.of("clinic", "mercy")
    with expect_refusal(key="roster", names="consortium"):
        read(other.newest.content, NORTH.newest.fingerprint)


def test_sites_certified_by_another_authority_are_refused() -> None:
    stranger = make_authority("north", START)
    body = json.loads(json.dumps(NORTH.newest.model_dump()))
    body["sites"][0]["certificate"] = pem(issue(stranger, "north", "clinic", make_site_key().public_key(), START))
    with expect_refusal(key="roster", names="certificate clinic"):
        read(write_signed("roster", body, NORTH.authority.key.sign))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda b: b.update(version=3), "roster 2"),
        (lambda b: b.update(history=[]), "roster 1"),
        (lambda b: b.update(history=["x"]), "history[0] x"),
        (lambda b: b.update(issued="yesterday"), "issued yesterday"),
        (lambda b: b.update(more=1), "roster more"),
        (lambda b: b.pop("sites"), "roster sites"),
        (lambda b: b["sites"].reverse(), "roster once"),
        (lambda b: b["sites"].append(b["sites"][1]), "roster once"),
        (lambda b: b["sites"][0].update(name="../clinic"), "sites[0].name ../clinic"),
        (lambda b: b["sites"][0].update(name="clinic-2"), "roster clinic-2"),
        (lambda b: b["sites"][0].update(address="here"), "sites[0].address here"),
        (lambda b: b["sites"][0].update(records=0), "sites[0].records 0 1"),
        (lambda b: b["sites"][0].update(records=True), "sites[0].records number"),
        (lambda b: b["sites"][0]["joined"].update(version=9), "roster site version"),
        (lambda b: b["sites"][0].update(left={"version": 3, "at_round": 1, "revoked": True}), "roster site version"),
        (lambda b: b["sites"][0]["joined"].update(at_round=-1), "sites[0].joined.at_round -1"),
        (lambda b: b.update(authority="nothing"), "roster authority"),
        (lambda b: b.update(consortium="south"), "roster consortium"),
    ],
)  # fmt: skip
def test_what_does_not_hold_together_is_refused_though_signed(change: object, why: str) -> None:
    body = json.loads(json.dumps(NORTH.newest.model_dump()))
    change(body)
    with expect_refusal(names=why):
        read(write_signed("roster", body, NORTH.authority.key.sign))


def test_two_sites_with_one_key_are_refused() -> None:
    made = Consortium.of()
    made.keys["mercy"] = made.keys["clinic"] = make_site_key()
    with expect_refusal(key="new", names="key"):
        made.next([made.site("clinic"), made.site("mercy")])


def test_only_a_later_version_of_the_same_line_is_accepted() -> None:
    made = Consortium.of("clinic", "mercy")
    second = made.newest
    third = made.next([*second.sites, made.site("lab")])
    fourth = made.next([*third.sites])
    assert check_successor(second, third)
    assert check_successor(second, fourth)  # versions in between need not be seen
    assert not check_successor(third, third)
    with expect_refusal(key="roster", value="2", names="3"):
        check_successor(third, second)
    with expect_refusal(key="roster", value="2"):
        check_successor(third, Consortium.of("clinic", name="south").newest)
    with expect_refusal(key="roster", value="2"):
        check_successor(third, Consortium.of("clinic").newest)


def test_a_fork_is_noticed_also_behind_further_versions() -> None:
    made = Consortium.of("clinic", "mercy")
    second = made.newest
    third = made.next([*second.sites, made.site("lab")])
    forked = sign_roster(made.authority, second.consortium, second.sites, START + timedelta(hours=1), second)
    later = sign_roster(made.authority, second.consortium, second.sites, START, forked)
    for other in (forked, later):
        with expect_refusal(key="roster", names="3"):
            check_successor(third, other)


def with_left(roster: Roster, name: str, left: Left) -> list[object]:
    return [site.model_copy(update={"left": left}) if site.name == name else site for site in roster.sites]


def test_changes_take_effect_at_their_round_in_studies_packed_before() -> None:
    made = Consortium.of("clinic", "mercy")
    packed = made.newest.version
    made.next([*made.newest.sites, made.site("lab", at_round=50)])
    made.next(with_left(made.newest, "mercy", Left(version=4, at_round=80)))
    now = made.newest
    assert now.epochs(packed, 100) == [
        (0, ("clinic", "mercy")), (50, ("clinic", "lab", "mercy")), (80, ("clinic", "lab"))
    ]  # fmt: skip
    assert now.epochs(packed, 60) == [(0, ("clinic", "mercy")), (50, ("clinic", "lab", "mercy"))]
    assert now.epochs(now.version, 100) == [(0, ("clinic", "lab"))]  # a study packed now begins so
    assert list(now.members(49, packed)) == ["clinic", "mercy"]
    assert list(now.members(50, packed)) == ["clinic", "lab", "mercy"]
    assert list(now.members(since=packed)) == ["clinic", "lab", "mercy"]  # links: to come and to go
    assert list(now.members()) == ["clinic", "lab"]


def test_a_revoked_site_has_no_link_from_the_first_moment() -> None:
    made = Consortium.of("clinic", "mercy")
    packed = made.newest.version
    made.next(with_left(made.newest, "mercy", Left(version=3, at_round=80, revoked=True)))
    assert list(made.newest.members(since=packed)) == ["clinic"]
    assert list(made.newest.members(79, packed)) == ["clinic", "mercy"]  # the graph changes at the round
    assert list(made.newest.members(80, packed)) == ["clinic"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 30)), min_size=1, max_size=3))
def test_epochs_cover_every_round_and_agree_with_its_members(spans: list[tuple[int, int | None]]) -> None:
    made = Consortium.of("anna")
    sites = [made.newest.site("anna")]
    for k, (start, end) in enumerate(spans):
        left = None if end is None else Left(version=3, at_round=end)
        site = made.site(f"site-{k}", at_round=start)
        sites.append(site.model_copy(update={"left": left, "joined": Joined(version=3, at_round=start)}))
    roster = made.next(sites)
    epochs = roster.epochs(2, 30)
    for t in range(30):
        in_force = [names for first, names in epochs if first <= t][-1]
        expected = {"anna"} | {
            f"site-{k}" for k, (start, end) in enumerate(spans) if start <= t and (end is None or t < end)
        }
        assert set(in_force) == expected


def test_differences_are_what_an_operator_agrees_to() -> None:
    made = Consortium.of("clinic", "mercy")
    first = made.newest
    assert len(differences(None, first)) == 2
    moved = first.site("clinic").model_copy(update={"address": "c.example:1", "records": 7})
    key = issue(made.authority, "north", "mercy", make_site_key().public_key(), START)
    stolen = first.site("mercy").model_copy(update={"certificate": pem(key)})
    said = differences(first, made.next([moved, stolen, made.site("lab", at_round=9)]))
    assert "clinic is found at c.example:1 instead of no address" in said
    assert "clinic declares 7 records instead of 100" in said
    assert "mercy has a new certificate with ANOTHER KEY" in said
    assert any(sentence.startswith("lab joins at round 9") for sentence in said)
    out = differences(made.newest, made.next(with_left(made.newest, "lab", Left(version=4, revoked=True))))
    assert out == ["lab is revoked, its links go down at once, and it is out"]


def test_warnings_are_of_those_who_are_in() -> None:
    made = Consortium.of("clinic", "mercy")
    assert made.newest.warnings(START + timedelta(days=70)) == []
    assert len(made.newest.warnings(START + timedelta(days=80))) == 2
    made.next(with_left(made.newest, "mercy", Left(version=3)))
    assert len(made.newest.warnings(START + timedelta(days=80))) == 1


def test_an_unknown_site_is_named_with_the_nearest() -> None:
    with expect_refusal(key="mercu", names="north", remedy=True):
        NORTH.newest.site("mercu")
