from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortia import RECIPE, rows

from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.envelope import sealed
from gossamer.consortium.names import now
from gossamer.consortium.packing import pack
from gossamer.consortium.roster import next_version
from gossamer.consortium.site import Site
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.training.assemble import assemble
from gossamer.training.budget import places
from gossamer.training.plan import Plan


def test_a_study_says_all_that_sites_agree_upon(study: Study, north: Coordinator) -> None:
    assert (study.name, study.version, study.sites) == ("readmission", 1, ("clinic", "mercy"))
    assert study.roster.content == north.roster().content
    assert (study.terms.deadline, study.terms.late, study.terms.tick) == (30.0, 4, 0.25)
    assert study.body.model.parameters == 6  # two columns and a bias, two classes
    assert study.body.test is not None
    assert study.body.test.rows == 30
    assert (study.node("clinic"), study.node("mercy")) == (0, 1)
    with pytest.raises(UserError, match="'lab' is not in the study"):
        study.node("lab")


def test_nodes_and_records_are_the_rosters_and_no_path_is_anybodys(study: Study, place: Path) -> None:
    assert study.config.nodes == 2
    assert study.config.data.records == [100, 100]
    assert study.config.data.features == ["a", "b"]
    assert str(place).encode() not in study.content
    assert b"site-" not in study.content


def test_every_part_of_a_study_is_signed(study: Study) -> None:
    content = study.content
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(UserError):
            Study.of(bytes(changed), "a study")


def test_no_other_content_is_a_study(study: Study) -> None:
    content = study.content

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, len(content) - 1), st.binary(max_size=4), st.integers(0, 4))
    def other(place: int, put: bytes, cut: int) -> None:
        changed = content[:place] + put + content[place + cut :]
        if changed != content:
            with pytest.raises(UserError):
                Study.of(changed, "a study")

    other()


def test_another_authoritys_study_is_refused(study: Study, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another consortium's"):
        Study.of(study.content, "a study", "ab" * 32)
    thief = Coordinator.init("thief", tmp_path / "thief")
    body = json.loads(json.dumps(study.body.model_dump()))
    with pytest.raises(UserError, match="not what the consortium's authority signed"):
        Study.of(sealed("study", body, thief.authority.key), "a study")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda b: b["terms"].update(deadline=0.0), "deadline"),
        (lambda b: b["terms"].update(late=-1), "late"),
        (lambda b: b.update(version=0), "version"),
        (lambda b: b.update(issued="today"), "date"),
        (lambda b: b.update(extra=1), "extra is not a key"),
        (lambda b: b.update(roster="nothing"), "is no roster"),
        (lambda b: b["model"].update(digest="x"), "digest"),
    ],
)
def test_what_no_packer_writes_is_refused_though_signed(
    study: Study, north: Coordinator, change: Any, why: str
) -> None:
    body = json.loads(json.dumps(study.body.model_dump()))
    change(body)
    with pytest.raises(UserError, match=why):
        Study.of(sealed("study", body, north.authority.key), "a study")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "softmax"\nbias = true', 'kind = "own"\npath = "net.py:make"', "is code"),
        ('source = "system"', 'source = "seeded"', "no privacy"),
        ("nodes = 2", "nodes = 2\nbackdoor = 1", "backdoor"),
        ("rounds = 4", "rounds = ", "not TOML"),
    ],
)
def test_a_recipe_is_looked_at_again_at_every_site(
    study: Study, north: Coordinator, old: str, new: str, why: str
) -> None:
    body = json.loads(json.dumps(study.body.model_dump()))
    assert old in body["recipe"]
    body["recipe"] = body["recipe"].replace(old, new)
    made = Study.of(sealed("study", body, north.authority.key), "a study")
    with pytest.raises(UserError, match=why):
        _ = made.config


def at(study: Study, place: Path, name: str, folder: Path) -> Any:
    """The outline and parts of one site, through the one door."""
    site = Site.read(place / name)
    (place / name / "test.csv").write_bytes((place / "test.csv").read_bytes())
    config, node = study.at(site, folder), study.node(name)
    o = Plan.of(config, nodes=range(node, node + 1))
    study.check_plan(o)
    return o, assemble(o, nodes=range(node, node + 1))


def test_a_site_runs_its_own_file_with_everybodys_plan(study: Study, place: Path, tmp_path: Path) -> None:
    found = {}
    for name in ("clinic", "mercy"):
        (tmp_path / name).mkdir()
        found[name] = at(study, place, name, tmp_path / name)
    (o, clinic), (other, mercy) = found["clinic"], found["mercy"]
    assert (len(clinic.dataset.x_train), len(mercy.dataset.x_train)) == (90, 110)
    assert [plan.proven.epsilon for plan in o.privacy.nodes] == [
        plan.proven.epsilon for plan in other.privacy.nodes
    ]
    assert (clinic.x0 == mercy.x0).all()
    # mercy's file has its columns in another order; what is trained on has not.
    assert mercy.dataset.columns == clinic.dataset.columns == ("a", "b")
    first = (place / "mercy" / "records.csv").read_text().splitlines()[1].split(",")
    assert mercy.dataset.x_train[0].tolist() == pytest.approx([float(first[2]), float(first[1])])
    # What it spends is kept beside the records themselves, under the site's own cap.
    assert o.asked.privacy.cap == 8.0
    (account,) = places(o.asked, None, range(1))
    assert account.account == (place / "clinic" / "budget.jsonl").resolve()


def test_other_test_rows_are_refused(study: Study, place: Path, tmp_path: Path) -> None:
    site = Site.read(place / "clinic")
    rows(place / "clinic" / "test.csv", 29, start=5000)
    with pytest.raises(UserError, match="holds other test rows"):
        study.at(site, tmp_path)
    (place / "clinic" / "test.csv").unlink()
    with pytest.raises(UserError, match="30 public test rows"):
        study.at(site, tmp_path)


def test_another_first_model_is_refused(study: Study, place: Path, tmp_path: Path) -> None:
    o, _ = at(study, place, "clinic", tmp_path)
    changed = study.body.model.model_copy(update={"digest": "ab" * 32})
    other = Study(study.content, "a study", study.body.model_copy(update={"model": changed}), study.roster)
    with pytest.raises(UserError, match="first model here is not that of a study"):
        other.check_plan(o)


def test_a_study_brings_no_roster_that_was_not_accepted(
    north: Coordinator, study: Study, tmp_path: Path
) -> None:
    study.check_held(study.roster)
    newest = north.renew(["clinic"])[0]
    study.check_held(newest)  # an earlier version of what is held
    later, _, _ = pack(north, RECIPE, {"data.features": ["a", "b"]}, out=tmp_path / "later.study")
    with pytest.raises(UserError, match="accept` the newest first"):
        later.check_held(study.roster)
    forked = Coordinator(north.folder)
    before = forked.roster_file.read_bytes()
    forked.roster_file.write_bytes(study.roster.content)
    other = forked.renew(["mercy"])[0]  # a second version of the same number
    forked.roster_file.write_bytes(before)
    if other.version == newest.version - 1:
        other = next_version(north.authority, other, list(other.sites), now())
    with pytest.raises(UserError, match="two of one version"):
        later.check_held(other)
