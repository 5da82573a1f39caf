from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortia import RECIPE, rows
from tests.support.refusals import expect_refusal

from gossamer.accounting.budget import default_folder
from gossamer.config.layers import resolve
from gossamer.config.methods import PRESETS
from gossamer.consortium.files import now, write_signed
from gossamer.consortium.folders import Coordinator, Site
from gossamer.consortium.roster import sign_roster
from gossamer.consortium.study import SURVIVES, Study, pack, refuse_for_peers
from gossamer.errors import UserError
from gossamer.training.assemble import assemble
from gossamer.training.budget import places
from gossamer.training.plan import Plan


def test_a_study_says_all_that_sites_agree_upon(study: Study, north: Coordinator) -> None:
    assert (study.name, study.version, study.sites) == ("readmission", 1, ("clinic", "mercy"))
    assert study.roster.content == north.roster().content
    assert (study.terms.deadline, study.terms.late, study.terms.tick) == (30.0, 4, 0.25)
    assert study.model.parameters == 6  # two columns and a bias, two classes
    assert study.test is not None
    assert study.test.rows == 30


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
    with expect_refusal(key="roster", names="consortium"):
        Study.of(study.content, "a study", "ab" * 32)
    thief = Coordinator.init("thief", tmp_path / "thief")
    body = json.loads(json.dumps(study.model_dump()))
    with expect_refusal(key="study", names="authority"):
        Study.of(write_signed("study", body, thief.authority.key.sign), "a study")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda b: b["terms"].update(deadline=0.0), "terms.deadline 0.0"),
        (lambda b: b["terms"].update(late=-1), "terms.late -1"),
        (lambda b: b.update(version=0), "version 0"),
        (lambda b: b.update(issued="today"), "issued today date"),
        (lambda b: b.update(extra=1), "study extra"),
        (lambda b: b.update(signed_roster="nothing"), "roster"),
        (lambda b: b["model"].update(digest="x"), "model.digest x"),
    ],
)
def test_what_no_packer_writes_is_refused_though_signed(
    study: Study, north: Coordinator, change: Any, why: str
) -> None:
    body = json.loads(json.dumps(study.model_dump()))
    change(body)
    with expect_refusal(names=why):
        Study.of(write_signed("study", body, north.authority.key.sign), "a study")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "softmax"\nbias = true', 'kind = "own"\npath = "net.py:make"', "model.kind own"),
        ('source = "system"', 'source = "seeded"', "privacy.noise.source seeded"),
        ("nodes = 2", "nodes = 2\nbackdoor = 1", "recipe backdoor"),
        ("rounds = 4", "rounds = ", "study TOML"),
    ],
)
def test_a_recipe_is_looked_at_again_at_every_site(
    study: Study, north: Coordinator, old: str, new: str, why: str
) -> None:
    body = json.loads(json.dumps(study.model_dump()))
    assert old in body["recipe"]
    body["recipe"] = body["recipe"].replace(old, new)
    made = Study.of(write_signed("study", body, north.authority.key.sign), "a study")
    with expect_refusal(names=why):
        _ = made.config


def at(study: Study, place: Path, name: str, folder: Path) -> Any:
    """The outline and parts of one site, through the one door."""
    site = Site.read(place / name)
    (place / name / "test.csv").write_bytes((place / "test.csv").read_bytes())
    config, node = study.config_at(site, folder, 1), study.sites.index(name)
    o = Plan.of(config, nodes=range(node, node + 1))
    study.check_first_model(o)
    return o, assemble(o, nodes=range(node, node + 1))


def test_a_site_runs_its_own_file_with_everybodys_plan(study: Study, place: Path, tmp_path: Path) -> None:
    found = {}
    for name in ("clinic", "mercy"):
        (tmp_path / name).mkdir()
        found[name] = at(study, place, name, tmp_path / name)
    (o, clinic), (other, mercy) = found["clinic"], found["mercy"]
    assert (len(clinic.dataset.x_train), len(mercy.dataset.x_train)) == (90, 110)
    assert [plan.proven.epsilon for plan in o.privacy.nodes] == [plan.proven.epsilon for plan in other.privacy.nodes]
    assert (clinic.x0 == mercy.x0).all()
    # mercy's file has its columns in another order; what is trained on has not.
    assert mercy.dataset.columns == clinic.dataset.columns == ("a", "b")
    first = (place / "mercy" / "records.csv").read_text().splitlines()[1].split(",")
    assert mercy.dataset.x_train[0].tolist() == pytest.approx([float(first[2]), float(first[1])])
    # What it spends is kept where the site says, under its own cap and name, whatever the study asks for.
    assert o.asked.privacy.cap == 8.0
    (held,) = places(o.asked, None, range(1))
    assert (held.source.folder, held.source.name) == (default_folder(), None)
    toml = place / "clinic" / "site.toml"
    toml.write_text('account = "its patients"\naccounts = "books"\n' + toml.read_text())
    (held,) = places(at(study, place, "clinic", tmp_path / "clinic")[0].asked, None, range(1))
    assert (held.source.folder, held.source.name) == ((place / "clinic" / "books").resolve(), "its patients")


def test_other_test_rows_are_refused(study: Study, place: Path, tmp_path: Path) -> None:
    site = Site.read(place / "clinic")
    rows(place / "clinic" / "test.csv", 29, start=5000)
    with expect_refusal(key="test.csv", names="rows"):
        study.config_at(site, tmp_path, 1)
    (place / "clinic" / "test.csv").unlink()
    with expect_refusal(key="site.toml", names="30"):
        study.config_at(site, tmp_path, 1)


def test_another_first_model_is_refused(study: Study, place: Path, tmp_path: Path) -> None:
    o, _ = at(study, place, "clinic", tmp_path)
    changed = study.model.model_copy(update={"digest": "ab" * 32})
    other = study.model_copy(update={"model": changed})
    with expect_refusal(key="first", names="model"):
        other.check_first_model(o)


def test_a_study_brings_no_roster_that_was_not_accepted(north: Coordinator, study: Study, tmp_path: Path) -> None:
    study.check_accepted(study.roster)
    newest = north.renew(["clinic"])[0]
    study.check_accepted(newest)  # an earlier version of what is held
    later, _, _ = pack(north, RECIPE, {"data.features": ["a", "b"]}, out=tmp_path / "later.study")
    with expect_refusal(key="later.study", names="accept", remedy=True):
        later.check_accepted(study.roster)
    forked = Coordinator(north.folder)
    before = forked.roster_file.read_bytes()
    forked.roster_file.write_bytes(study.roster.content)
    other = forked.renew(["mercy"])[0]  # a second version of the same number
    forked.roster_file.write_bytes(before)
    if other.version == newest.version - 1:
        other = sign_roster(north.authority, other.consortium, other.sites, now(), other)
    with expect_refusal(key="later.study", names="version"):
        later.check_accepted(other)


PLAIN: dict[str, Any] = {
    "nodes": 3,
    "rounds": 5,
    "data": {"kind": "csv", "path": "site-{node}.csv", "label": "y", "classes": 2, "records": 50},
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dyn-d2p"},
    "privacy": {"epsilon": 4.0},
}


def refuse(changes: dict[str, Any], *, for_science: bool = False) -> None:
    refuse_for_peers(resolve(PLAIN, changes), for_science=for_science)


def test_what_peers_can_run() -> None:
    refuse({})
    refuse({"data.path": "all.csv", "data.owner": "clinic"})
    refuse({"algorithm.kind": "full-lot", "privacy.centre": 0.1})
    for kind in ("dp-dsgd", "dp-dsgt", "dp-dinno", "dp-dkm"):
        refuse({"algorithm.kind": kind})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data.kind": "digits"}, "data.kind digits"),
        ({"data.path": "all.csv"}, "data.path all.csv"),
        ({"data.classes": None}, "data.classes"),
        ({"data.train_rows": 10}, "data.train_rows 10"),
        ({"data.held_out": 10}, "data.held_out 10"),
        ({"data.pca": 2}, "data.pca_from train"),
        (
            {"data.pca": 2, "data.pca_from": "private"},
            "data.pca_from private",
        ),
        ({"data.class_weights": "private"}, "data.class_weights private"),
        ({"baseline": "central"}, "baseline central"),
        ({"algorithm.mixes": "exact"}, "algorithm.mixes exact"),
        ({"privacy.centre": 0.1, "algorithm.kind": "dp-dsgd"}, "privacy.centre 0.1 push-sum"),
        (
            {"algorithm.final_gossip": 3, "algorithm.kind": "dp-dsgt"},
            "algorithm.final_gossip 3 push-sum",
        ),
        ({"privacy.noise.on": "iterate", "algorithm.kind": "dp-dkm"}, "privacy.noise.on iterate"),
        ({"privacy.noise.kind": "pairwise"}, "privacy.noise.family.kind pairwise"),
        ({"evaluation.diagnostics": True}, "evaluation.diagnostics true"),
        ({"evaluation.private": 0.2}, "evaluation.private 0.2"),
        ({"privacy.sampling": {"kind": "balls-and-bins", "lots": 5}}, "privacy.sampling.kind balls-and-bins"),
    ],
)
def test_what_peers_cannot_run_also_not_for_science(changes: dict[str, Any], why: str) -> None:
    for science in (False, True):
        with expect_refusal(names=why):
            refuse(changes, for_science=science)


@pytest.mark.parametrize("kind", [kind for kind in PRESETS if PRESETS[kind]["rule"] not in SURVIVES])
def test_every_method_that_does_not_survive_is_refused_by_name(kind: str) -> None:
    with expect_refusal("algorithm.kind", kind):
        refuse({"algorithm.kind": kind}, for_science=True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"privacy.noise.source": "seeded"}, "privacy.noise.source seeded"),
        ({"mode": "paper"}, "mode paper"),
        ({"algorithm.kind": "sgp"}, "privacy.noise.schedule.kind protects"),
    ],
)
def test_what_protects_nobody_is_for_science_alone(changes: dict[str, Any], why: str) -> None:
    with expect_refusal(names=why):
        refuse(changes)
    refuse(changes, for_science=True)


def test_a_rule_that_nobody_has_looked_at_is_refused() -> None:
    asked = resolve(PLAIN, {})
    unknown = SimpleNamespace(kind="mine", rule="mine", mixes=1, final_gossip=0)
    with expect_refusal(key="algorithm.kind", value="mine"):
        refuse_for_peers(asked.model_copy(update={"algorithm": unknown}), for_science=True)


def test_no_code_travels() -> None:
    config = resolve(PLAIN, {})
    from gossamer.models.networks import Own

    own = config.model_copy(update={"model": Own(path="net.py:make")})
    with expect_refusal(key="model.kind", value="own"):
        refuse_for_peers(own, for_science=True)
