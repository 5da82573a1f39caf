"""The commands of a consortium as its people type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.consortia import RECIPE, rows
from tests.support.refusals import assert_names

from gossamer.consortium.folders import Site


@pytest.fixture
def consortium(command, tmp_path: Path):  # type: ignore[no-untyped-def]
    """north with the sites clinic and mercy, who have accepted the newest roster."""
    assert command("pki", "init", "north")[0] == 0
    for site in ("clinic", "mercy"):
        assert command("pki", "invite", site, "--out", f"{site}.invite")[0] == 0
        assert command("pki", "join", f"{site}.invite", "--records", "100", "--cap", "8")[0] == 0
        assert command("pki", "approve", site, f"{site}/{site}.request")[0] == 0
    for site in ("clinic", "mercy"):
        code, out, _ = command("pki", "accept", "north/north.roster", "--site", site, "--yes")
        assert (code, "roster 3 of north is accepted; its sites: clinic, mercy" in out) == (0, True)
    return command


def test_both_ends_see_the_same_mark_of_the_key(command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command("pki", "init", "north")
    assert code == 0
    assert "authority: " in out
    code, line, said = command("pki", "invite", "mercy")
    assert code == 0
    assert len(line.splitlines()) == 1  # to be copied
    assert "good once, until" in said
    code, out, _ = command("pki", "join", line.strip(), "--records", "120", "--listen", "mercy.example.org:7443")
    mark = out.partition("by telephone: ")[2].splitlines()[0]
    code, out, _ = command("pki", "approve", "mercy", "mercy/mercy.request")
    assert (code, mark in out) == (0, True)
    assert len(mark) == 19
    code, out, _ = command("pki", "show", "north")
    assert f"key {mark}" in out
    assert "mercy  120 records, mercy.example.org:7443" in out


def test_the_secret_of_an_invite_is_in_no_file_that_others_read(command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command("pki", "init", "north")
    command("pki", "invite", "mercy", "--out", "mercy.invite")
    for path in ("mercy.invite", "north/mercy.invite", "north/authority.key"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o600


def test_revoke_leave_renew_and_show(consortium) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = consortium("pki", "renew", "--dir", "north")
    assert (code, "no certificate ends within 14 days" in out) == (0, True)
    assert consortium("pki", "renew", "mercy")[1].startswith("new certificates: mercy\nroster 4: ")
    assert "mercy leaves at round 50" in consortium("pki", "leave", "mercy", "--at-round", "50")[1]
    code, out, _ = consortium("pki", "revoke", "clinic", "--at-round", "7")
    assert (code, "clinic is revoked\nroster 6: " in out) == (0, True)
    out = consortium("pki", "show", "north")[1]
    assert "clinic  revoked, in roster 6" in out
    assert "mercy  left, at round 50, in roster 5" in out


def test_a_new_roster_waits_for_a_word(consortium, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    consortium("pki", "revoke", "clinic")
    code, out, said = consortium("pki", "accept", "north/north.roster", "--site", "mercy")
    assert code == 2
    assert "clinic is revoked" in out
    assert "--yes" in said
    assert Site.read(tmp_path / "mercy", data="x", cap=1.0).roster().version == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("pki", "invite", "mercy"), "no consortium's folder is named and none is here"),
        (("pki", "init", "The North"), "small letters, digits and hyphens"),
        (("pki", "join", "gossamer-invite-1.abc", "--records", "1"), "invite pki"),
        (("pki", "join", "nowhere.invite", "--records", "1"), "nowhere.invite file"),
        (("pki", "accept", "a.roster"), "folder --site"),
        (("pki", "show", "a.roster"), "a.roster file"),
        (("pki", "show"), "0"),
        (("study", "show", "a.study"), "a.study file"),
        (("study", "pack", "quickstart"), "folder --dir"),
        (("certificate", "verify", "a.json", "b.json"), "--study"),
        (
            ("certificate", "verify", "a.json", "--study", "s", "--public-key", "k"),
            "--public-key",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(command, tmp_path: Path, words: tuple[str, ...], why: str) -> None:  # type: ignore[no-untyped-def]
    code, out, said = command(*words)
    assert code == 2
    assert_names(said, names=why)
    assert "Traceback" not in said
    assert out == ""
    assert os.listdir(tmp_path) == []


def test_a_study_is_packed_and_shown(consortium, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows(tmp_path / "test.csv", 20, start=5000)
    lines = [f"{key} = {json.dumps(value)}" for key, value in RECIPE.items() if not isinstance(value, dict)]
    lines += ['[data]\nkind = "csv"\npath = "site-{node}.csv"\nlabel = "y"\nclasses = 2\ntest = "test.csv"']
    lines += [
        '[model]\nkind = "softmax"\n[topology]\nkind = "complete"\n[algorithm]\nkind = "dyn-d2p"\n[privacy]\nepsilon = 4.0'
    ]
    (tmp_path / "recipe.toml").write_text("\n".join(lines))
    code, out, said = consortium("study", "pack", "recipe.toml", "--deadline", "5", "--late", "3")
    assert code == 0, said
    assert "planned: proven ε ≤ " in out
    assert "unit: one record of one node; observer: everyone" in out
    code, shown, _ = consortium("study", "show", "north/readmission-1.study")
    assert code == 0
    assert "consortium north, roster 3: clinic, mercy" in shown
    assert "a round waits 5 s; messages leave every 0.25 s and count for 3 rounds" in shown
    assert "20 public rows in test.csv" in shown
    assert 'kind = "dyn-d2p"' in consortium("study", "show", "north/readmission-1.study", "--recipe")[1]
    code, _, said = consortium("study", "pack", "recipe.toml", "--set", "privacy.noise.source=seeded")
    assert (code, "--for-science" in said) == (2, True)
    code, out, _ = consortium("study", "pack", "recipe.toml", "--set", "privacy.noise.source=seeded", "--for-science")
    assert (code, "FOR SCIENCE" in out) == (0, True)
    assert "planned: proven" not in out


def test_help_needs_neither_torch_nor_a_library_of_keys() -> None:
    code = "\n".join(
        [
            "import sys; sys.argv = ['gossamer', 'pki', '--help']",
            "from gossamer.cli import main",
            "try:\n    main()\nexcept SystemExit: pass",
            "print({'torch', 'cryptography', 'scipy'} & set(sys.modules))",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "set()"


def test_nothing_that_a_site_types_loads_torch() -> None:
    code = "\n".join(
        [
            "import sys; from gossamer.consortium import folders",
            "print('torch' in sys.modules)",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
