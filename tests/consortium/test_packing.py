from __future__ import annotations

import json
from pathlib import Path

from tests.support.consortia import RECIPE, Clock, accepted, on_disk
from tests.support.refusals import expect_refusal

from gossamer.consortium.files import now, write_signed
from gossamer.consortium.folders import Coordinator, Site
from gossamer.consortium.study import Study, pack


def test_without_test_rows_the_columns_must_be_named(north: Coordinator, tmp_path: Path) -> None:
    with expect_refusal(key="data.test"):
        pack(north, RECIPE, out=tmp_path / "a.study")
    made, _, _ = pack(north, RECIPE, {"data.features": ["a", "b"]}, out=tmp_path / "a.study")
    assert made.test is None
    assert made.model.parameters == 6


def test_declared_columns_are_part_of_what_is_signed(north: Coordinator, tmp_path: Path) -> None:
    """Known without a test row, in their order, and another declaration is another study."""
    columns = {"b": {"levels": ["x", "y"], "missing": True}, "a": [0, 10]}
    made, _, _ = pack(north, RECIPE, {"data.columns": columns}, out=tmp_path / "a.study")
    again = Study.of(made.content, "a.study").config.data
    assert list(again.schema or {}) == ["b", "a"]
    assert again.features is None
    assert made.model.parameters == 2 * (4 + 1)
    wider, _, _ = pack(north, RECIPE, {"data.columns": {**columns, "a": [0, 11]}}, out=tmp_path / "b.study")
    assert wider.recipe != made.recipe


def test_a_recipe_with_owners_becomes_a_file_per_site(north: Coordinator, tmp_path: Path) -> None:
    changes = {"data.path": "all.csv", "data.owner": "clinic", "data.features": ["a", "b"]}
    made, _, _ = pack(north, RECIPE, changes, out=tmp_path / "a.study")
    assert (made.config.data.path, made.config.data.owner) == ("records-{node}", None)


def test_what_is_refused_writes_nothing(north: Coordinator, tmp_path: Path) -> None:
    before = sorted(north.folder.iterdir())
    for changes, why in (
        ({"data.kind": "digits"}, "data.kind digits"),
        ({"nodes": 5}, "nodes 5 2"),
        ({"privacy.epsilon": [1.0, 2.0, 3.0]}, "privacy.epsilon 3 nodes 2"),
        ({"data.classes": None, "data.features": ["a"]}, "data.classes"),
    ):
        with expect_refusal(names=why):
            pack(north, RECIPE, changes)
    with expect_refusal(key="deadline", value="0"):
        pack(north, RECIPE, {"data.features": ["a"]}, deadline=0)
    assert sorted(north.folder.iterdir()) == before


def test_versions_count_and_nothing_is_overwritten(north: Coordinator, tmp_path: Path) -> None:
    changes = {"data.features": ["a", "b"], "name": "again/../x"}
    first, path, _ = pack(north, RECIPE, changes)
    second, other, _ = pack(north, RECIPE, changes)
    assert (first.version, second.version) == (1, 2)
    assert (path.name, other.name) == ("again----x-1.study", "again----x-2.study")
    assert path.parent == other.parent == north.folder
    assert first.digest != second.digest
    with expect_refusal(key="again----x-1.study", names="overwritten"):
        pack(north, RECIPE, changes, out=path)
    path.unlink(), other.unlink()


def test_a_study_needs_two_sites_with_certificates_that_hold(tmp_path: Path) -> None:
    alone = on_disk(tmp_path, "mercy")
    with expect_refusal(key="north", names="1", remedy=True):
        pack(alone, RECIPE, {"data.features": ["a"]})
    (tmp_path / "b").mkdir()
    ended = on_disk(tmp_path / "b", "clinic", "mercy")  # in March; it is later now
    with expect_refusal(key="certificate", names="clinic", remedy=True):
        pack(ended, RECIPE, {"data.features": ["a"]})


def test_a_later_roster_does_not_change_a_packed_study(place: Path, north: Coordinator, study: Study) -> None:
    later = north.renew(["mercy"])[0]
    accepted(place / "mercy", north, Clock(now()))
    assert later.version == study.roster.version + 1
    assert Study.read(place / "north" / "readmission-1.study").sites == study.sites


def test_a_study_names_no_account(north: Coordinator, tmp_path: Path) -> None:
    """Neither its coordinator's, when it is packed, nor one that a signed recipe asks a site for."""
    changes = {"data.features": ["a", "b"], "privacy.account": "ours", "data.accounts": str(tmp_path)}
    made, _, _ = pack(north, RECIPE, changes, out=tmp_path / "a.study")
    assert (made.config.privacy.account, made.config.data.accounts) == (None, None)
    body = json.loads(json.dumps(made.model_dump()))
    body["recipe"] = made.recipe.replace("[privacy]", '[privacy]\naccount = "fresh"', 1)
    asking = Study.of(write_signed("study", body, north.authority.key.sign), "a study")
    assert asking.config.privacy.account == "fresh"
    site = Site.read(north.folder.parent / "clinic")
    assert asking.config_at(site, tmp_path, 1).privacy.account is None
