from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.consortia import RECIPE, Clock, on_disk, rows
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.consortium.authority import make_site_key
from gossamer.consortium.certificates import signed_by_site, verify_set
from gossamer.consortium.files import now
from gossamer.consortium.folders import Coordinator, Site, join
from gossamer.consortium.study import Study, pack
from gossamer.errors import UserError
from gossamer.results.verify import verify_files

SITES = ("clinic", "mercy")


class Ended:
    """A study that has ended: what it stated, and each site's signed copy of it in a file."""

    def __init__(self, folder: Path):
        self.folder, self.north = folder, on_disk(folder, *SITES, clock=Clock(now()))
        self.study, self.file, _ = pack(self.north, RECIPE, {"data.features": ["a", "b"]})
        paths = [rows(folder / f"records-{k}", 90 + k, start=500 * k) for k in range(2)]
        tables = {**self.study.config.model_dump(exclude_none=True)}
        tables["data"]["path"] = str(paths[0].parent / "records-{node}")
        gossamer.run(tables, out=folder / "run", progress=False)
        self.stated = json.loads((folder / "run" / "certificate.json").read_text())

    def signed(self, site: str, change: Callable[[dict[str, Any]], Any] | None = None, **other: Any) -> dict[str, Any]:
        said = copy.deepcopy(self.stated)
        # One process ran both nodes, so they share a ledger; real sites have one each.
        place = self.study.sites.index(site)
        said["ledger_heads"][place] = said["ledger_heads"][place][place:] + "0" * place
        if change is not None:
            change(said)
        words = {
            "ledger_head": said["ledger_heads"][self.study.sites.index(site)],
            "events": 4,
            "key": Site.read(self.folder / site).key(),
            "at": now(),
        } | other
        return signed_by_site(said, words.pop("study", self.study), site, **words)

    def files(self, folder: Path, **certificates: dict[str, Any]) -> list[Path]:
        """clinic.json and mercy.json, these in place of theirs."""
        found = {site: self.signed(site) for site in SITES} | certificates
        for name, certificate in found.items():
            (folder / f"{name}.json").write_text(json.dumps(certificate, indent=2))
        return [folder / f"{name}.json" for name in found]

    def verify(self, paths: list[Path], **more: Any) -> list[str]:
        return verify_set(paths, self.file, **more)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended(tmp_path_factory.mktemp("ended"))


def test_a_whole_set_verifies_and_says_what_everyone_spent(ended: Ended, tmp_path: Path) -> None:
    said = ended.verify(ended.files(tmp_path))
    assert "2 certificates, each signed by its site's key, none missing" in said[0]
    for line, site in zip(said[1:3], SITES, strict=True):
        assert line.startswith(f"{site}: proven ε ≤ 4 (")
        assert "δ = 0.0001, add-remove, unit: one record of one node; observer: everyone" in line
    assert any(ended.study.roster.fingerprint in line for line in said)
    again = ended.verify(ended.files(tmp_path), authority=ended.study.roster.fingerprint)
    assert again[-1] == "the authority is the one that was asked for"
    with expect_refusal(key="roster", names="consortium"):
        ended.verify(ended.files(tmp_path), authority="ab" * 32)


def test_the_statement_leaves_the_runs_own_signature_whole(ended: Ended) -> None:
    path = ended.folder / "run" / "certificate.json"
    before = path.read_text()
    (ended.folder / "run" / "certificate.html").unlink()
    try:
        path.write_text(json.dumps(ended.signed("clinic"), indent=2))
        assert verify_files(ended.folder / "run").signed
    finally:
        path.write_text(before)


def test_none_may_be_missing_and_none_twice(ended: Ended, tmp_path: Path) -> None:
    clinic, mercy = ended.files(tmp_path)
    with expect_refusal(key="certificate", names="mercy"):
        ended.verify([clinic])
    with expect_refusal(key="mercy.json", names="certificate"):
        ended.verify([clinic, mercy, mercy])


def test_every_changed_figure_is_noticed(ended: Ended, tmp_path: Path) -> None:
    """Each stated value by itself, but for what an audit adds later, which nobody signs."""
    whole = ended.signed("mercy")
    for key, value in whole.items():
        if key in ("epsilon_audited", "violation", "audit", "signature", "signatures", "site"):
            continue
        changed = {**whole, key: "another" if not isinstance(value, str) else value + "x"}
        with pytest.raises(UserError):
            ended.verify(ended.files(tmp_path, mercy=changed))
    for key in whole["site"]:
        statement = {**whole["site"]}
        statement[key] = statement[key] + (1 if isinstance(statement[key], int) else "0")
        with pytest.raises(UserError):
            ended.verify(ended.files(tmp_path, mercy={**whole, "site": statement}))
        statement.pop(key)
        with expect_refusal(key="mercy.json"):
            ended.verify(ended.files(tmp_path, mercy={**whole, "site": statement}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.update(rounds=5), "5 4"),
        (lambda c: c.update(mode="paper"), "paper"),
        (lambda c: c.update(method="sgp"), "sgp"),
        (lambda c: c.update(noise_source="seeded"), "noise_source seeded"),
        (lambda c: c["public_constants"][1].update(records=99), "records"),
        (lambda c: c["epsilon_by_node"][1].update(proven=4.1), "4.1 4"),
        (
            lambda c: c["epsilon_by_node"][1].update(proven=None),
            "4",
        ),
        (lambda c: c.update(epsilon_by_node=[]), "mercy.json"),
    ],
)
def test_a_site_cannot_sign_another_study_than_was_agreed(
    ended: Ended, tmp_path: Path, change: Callable[[dict[str, Any]], Any], why: str
) -> None:
    with expect_refusal(key="mercy.json", names=why):
        ended.verify(ended.files(tmp_path, mercy=ended.signed("mercy", change)))


def test_only_the_rosters_key_signs_for_a_site(ended: Ended, tmp_path: Path) -> None:
    stranger = ended.signed("mercy", key=make_site_key())
    with expect_refusal(key="mercy.json", names="signed"):
        ended.verify(ended.files(tmp_path, mercy=stranger))
    others = ended.signed("mercy", key=Site.read(ended.folder / "clinic").key())
    with expect_refusal(key="mercy.json", names="signed"):
        ended.verify(ended.files(tmp_path, mercy=others))
    renamed = ended.signed("mercy")
    renamed["site"] = {**renamed["site"], "site": "lab"}
    with expect_refusal(key="mercy.json", names="lab site"):
        ended.verify(ended.files(tmp_path, mercy=renamed))


def test_ledgers_are_each_sites_own(ended: Ended, tmp_path: Path) -> None:
    with expect_refusal(key="mercy.json", names="ledger_head"):
        ended.verify(ended.files(tmp_path, mercy=ended.signed("mercy", ledger_head=ended.stated["ledger_heads"][0])))
    copied = ended.signed("mercy", lambda c: c["ledger_heads"].__setitem__(1, c["ledger_heads"][0]))
    with expect_refusal(key="sites", names="ledger"):
        ended.verify(ended.files(tmp_path, mercy=copied))


def test_another_study_of_the_same_consortium_is_another(ended: Ended, tmp_path: Path) -> None:
    other, _, _ = pack(ended.north, RECIPE, {"data.features": ["a", "b"]}, out=tmp_path / "other.study")
    with expect_refusal(key="mercy.json", names="study"):
        ended.verify(ended.files(tmp_path, mercy=ended.signed("mercy", study=other)))


def test_a_plain_certificate_is_no_sites(ended: Ended, tmp_path: Path) -> None:
    with expect_refusal(key="mercy.json", names="site"):
        ended.verify(ended.files(tmp_path, mercy=ended.stated))
    with expect_refusal(key="mercy.json", names="damaged"):
        ended.verify(ended.files(tmp_path, mercy={"site": {}}))


def test_joiners_owe_a_certificate_and_the_revoked_are_named(tmp_path: Path) -> None:
    ended = Ended(tmp_path)
    paths = ended.files(tmp_path)
    invite = ended.north.invite("lab")
    request, _ = join(invite, listen="none", records=7, folder=tmp_path / "lab")
    ended.north.approve("lab", request.read_bytes(), "a file", at_round=2)
    newest = ended.north.roster_file
    with expect_refusal(key="certificate", names="lab"):
        ended.verify(paths, roster_file=newest)
    ended.north.revoke("lab", 3)
    said = ended.verify(paths, roster_file=newest)
    assert "none missing" not in said[0]
    assert "lab was revoked and has no certificate here: its cost is not known" in said
    ended.north.revoke("mercy", 3)
    assert any("mercy was revoked" in line for line in ended.verify(paths[:1], roster_file=newest))
    elsewhere = Coordinator.init("south", tmp_path / "south")
    with expect_refusal(key="south.roster", names="consortium"):
        ended.verify(paths, roster_file=elsewhere.roster_file)


def test_who_reads_it_needs_no_record_and_no_key(ended: Ended, tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    paths = ended.files(public)
    (public / "a.study").write_bytes(ended.file.read_bytes())
    assert Study.read(public / "a.study").digest == ended.study.digest
    assert len(verify_set(paths, public / "a.study")) == 5
