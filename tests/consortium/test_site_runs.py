"""What a site has after a study that protects persons: its certificate, its page, its model and its report."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.consortia import Clock, on_disk
from tests.support.peer_studies import said
from tests.support.refusals import assert_names, expect_refusal
from tests.support.simulated_links import Network

import gossamer
from gossamer.consortium.files import now
from gossamer.consortium.peer import Participation, take_part
from gossamer.results.rundir import OF_SITE

Command = Callable[..., tuple[int, str, str]]
RECIPE = """
name = "readmission"
nodes = 2
rounds = 4
[data]
kind = "csv"
path = "site-{node}.csv"
test = "test.csv"
label = "y"
classes = ["home", "back"]
[model]
kind = "softmax"
[topology]
kind = "complete"
[algorithm]
kind = "dyn-d2p"
[privacy]
epsilon = [4.0, 3.0]
delta = 1e-4
unit = { column = "patient", max_records = 3 }
sampling = { kind = "poisson", rate = 0.25 }
"""


def persons(path: Path, count: int, start: int) -> None:
    """A table of so many persons with one to four rows each."""
    lines = ["patient,a,b,y"]
    for k in range(start, start + count):
        for visit in range(1 + k % 4):
            a, b = ((k * 37 + visit * 11) % 101) / 50 - 1, ((k * 53 + visit * 7) % 97) / 48 - 1
            lines.append(f"p{k},{a},{b},{'back' if a + b > 0 else 'home'}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed by the command, and run to its end by both sites."""
    folder = tmp_path_factory.mktemp("persons")
    on_disk(folder, "clinic", "mercy", clock=Clock(now()))
    persons(folder / "test.csv", 20, start=5000)
    (folder / "recipe.toml").write_text(RECIPE)
    for k, name in enumerate(("clinic", "mercy")):
        persons(folder / name / "records.csv", 60, start=1000 * k)
        shutil.copy(folder / "test.csv", folder / name / "test.csv")
        (folder / name / "part").mkdir()
    file = folder / "one.study"
    said(
        "study", "pack", str(folder / "recipe.toml"), "--set", f"data.test={folder / 'test.csv'}", "--tick", "0.01",
        "--deadline", "2", "--dir", str(folder / "north"), "--out", str(file),
    )  # fmt: skip
    network = Network(["clinic", "mercy"])

    def part(name: str) -> None:
        found = Participation.open(file, folder / name, folder / name / "part", now())
        take_part(
            found,
            folder / name / "part",
            wait=20.0,
            clock=network.clock,
            open_links=lambda: network.links(name),
        )

    network.run({name: lambda name=name: part(name) for name in ("clinic", "mercy")})
    return file


@pytest.fixture
def mercy(study: Path, tmp_path: Path) -> Path:
    """Its run directory, to do with as one likes."""
    return Path(shutil.copytree(study.parent / "mercy" / "part" / OF_SITE, tmp_path / "mercy"))


def test_a_lost_account_is_noticed_by_the_run_directory_of_an_earlier_study(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a study and in it, though a site has its own records alone and each study a folder of its own."""
    site = Path(shutil.copytree(study.parent / "mercy", tmp_path / "mercy", symlinks=True))
    (site / "records.csv.account").unlink()
    link = site / "part" / "records-1"
    link.unlink()
    link.symlink_to(site / "records.csv")
    for file in (site / "site.toml", site / "part" / OF_SITE / "config.toml"):
        file.write_text(file.read_text().replace(str(study.parent), str(tmp_path)))
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "new"))
    (site / "another").mkdir()
    again = Participation.open(study, site, site / "another", now())
    for begin in (again.check, lambda: take_part(again, site / "another", wait=0.0)):
        with expect_refusal(key="run", names="mercy part"):
            begin()


def test_a_study_with_persons_is_packed_run_certified_and_verified(study: Path, command: Command) -> None:
    runs = [str(study.parent / name / "part" / OF_SITE) for name in ("clinic", "mercy")]
    code, out, err = command("certificate", "verify", *runs, "--study", str(study))
    assert code == 0, err
    assert "2 certificates, each signed by its site's key, none missing" in out
    assert out.count("unit: one person (column patient) at one node") == 2
    for node, run in enumerate(runs):
        code, out, err = command("certificate", "verify", run)
        assert code == 0, err
        certificate = json.loads((Path(run) / "certificate.json").read_text())
        assert certificate["unit"] == "one person (column patient) at one node"
        assert certificate["epsilon_by_node"][node]["proven"] <= (4.0, 3.0)[node]


@pytest.mark.parametrize(
    ("unit", "refused"),
    [
        ('{column="patient",combine="mean"}', None),
        ('{column="patient",max_sites=2}', ""),
    ],
)
def test_other_units_of_persons_are_packed_or_refused(
    study: Path, tmp_path: Path, unit: str, refused: str | None
) -> None:
    folder = study.parent
    words = (
        "study", "pack", str(folder / "recipe.toml"), "--set", f"data.test={folder / 'test.csv'}",
        "--set", f"privacy.unit={unit}", "--set", "privacy.epsilon=4", "--dir", str(folder / "north"),
        "--out", str(tmp_path / "a.study"),
    )  # fmt: skip
    if refused is None:
        assert "unit: one person (column patient)" in said(*words)
        return
    with expect_refusal(key="privacy.unit.max_sites", value="2", names=refused):
        said(*words)
    assert not (tmp_path / "a.study").exists()


def test_a_site_predicts_and_exports_with_its_own_model(mercy: Path, study: Path, command: Command) -> None:
    test = study.parent / "mercy" / "test.csv"
    code, out, err = command("predict", "mercy", str(test), "--out", "p.csv", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["node"], found["model"]) == (1, "node 1 of 2, the site mercy")
    last = json.loads((mercy / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["accuracy"] == last["accuracy_by_node"][0]
    assert found["public"] is True
    code, out, _ = command("predict", "mercy", str(test), "--out", "p.csv")
    assert "model: node 1 of 2, the site mercy" in out
    code, out, err = command("export", "mercy", "--out", "model")
    assert (code, "model: node 1 of 2, the site mercy" in out) == (0, True), err
    card = json.loads((mercy.parent / "model" / "model_card.json").read_text())
    assert card["model"]["of"] == "node 1 of 2, the site mercy"

    run = gossamer.load(mercy)
    with test.open() as file:
        rows = [[float(row["a"]), float(row["b"])] for row in csv.DictReader(file)]
    with (mercy.parent / "p.csv").open() as file:
        assert run.predict(rows).tolist() == [row["prediction"] for row in csv.DictReader(file)]
    assert run.module()(run.module()[1].weight.new_zeros(1, 2)).shape == (1, 2)


def test_what_a_site_has_not_is_not_said_to_have_been_there(mercy: Path, study: Path, command: Command) -> None:
    test = str(study.parent / "mercy" / "test.csv")
    for node, names in (("average", "average node 1"), ("0", "node 0 1")):
        code, _, err = command("predict", "mercy", test, "--node", node, "--out", "p.csv")
        assert (code, err.count("\n")) == (2, 1), err
        assert_names(err, names=names, remedy=True)
        assert ".safetensors" not in err
    (mercy / "models.nodes-001-001.safetensors").unlink()
    code, _, err = command("predict", "mercy", test, "--out", "p.csv")
    assert code == 2
    assert_names(err, "models.nodes-001-001.safetensors", remedy=True)


def test_a_site_gets_a_report(mercy: Path, command: Command) -> None:
    code, _, err = command("report", "mercy", "--out", "report.html")
    assert code == 0, err
    page = (mercy.parent / "report.html").read_text(encoding="utf-8")
    assert "Consensus distance" not in page
    own = json.loads((mercy / "certificate.json").read_text())["epsilon_by_node"][1]["proven"]
    assert f"ε: proven {own:.3g}, " in page
    assert "None" not in _text(page.rpartition("</script></head>")[2].partition('<script type="application/json"')[0])


def _text(page: str) -> str:
    page = re.sub("(?s)<(style|script).*?</(style|script)>|<pre>.*?</pre>", " ", page)
    return html.unescape(re.sub("<[^>]*>", " ", page))


def test_a_sites_page_names_site_and_study_and_one_epsilon(mercy: Path, command: Command) -> None:
    certificate: dict[str, Any] = json.loads((mercy / "certificate.json").read_text())
    page = _text((mercy / "certificate.html").read_text(encoding="utf-8"))
    sheet = page.partition("All figures")[0]
    assert f"Study “readmission” ({certificate['site']['study'][:16]}), site mercy" in sheet
    assert "by the site mercy" in sheet
    assert "No organisation has signed" not in page
    assert "None" not in page
    assert "100 persons as declared" in sheet  # its own, and not those of both
    assert "rate 0.25, 4 draws, ε ≤ 3" in sheet
    own = certificate["epsilon_by_node"][1]["proven"]
    promised, annex = sheet.split("Annex, for technicians")
    figures = set(re.findall(r"proven ε [=≤] ([\d.]+)|ε ≤ ([\d.]+) is proven", promised))
    assert {one or two for one, two in figures} == {f"{own:.3g}"}
    assert "0: 100 persons, rate 0.25, ε ≤ 4, as stated by the study's plan" in annex
    code, out, _ = command("certificate", "verify", "mercy")
    assert (code, f"proven ε ≤ {own:.3g} for mercy" in out) == (0, True)
    assert "no organisation" not in out


def test_an_organisation_signs_a_sites_certificate_too(mercy: Path, command: Command) -> None:
    command("certificate", "key", "--out", "key.pem")
    assert command("certificate", "sign", "mercy", "--key", "key.pem", "--name", "Hospital A")[0] == 0
    assert command("certificate", "verify", "mercy")[0] == 0
    page = _text((mercy / "certificate.html").read_text(encoding="utf-8"))
    assert "by the site mercy" in page
    assert "in the name of Hospital A" in page


def test_a_sites_certificate_alone_needs_its_study(mercy: Path, command: Command) -> None:
    code, _, err = command("certificate", "verify", "mercy/certificate.json")
    assert (code, err.count("\n"), "--study" in err) == (2, 1, True), err


@pytest.mark.parametrize("said_by", [1, {"site": 1}, {"site": "a\x1bb"}, {"site": "mercy"}])
def test_a_site_that_is_none_is_no_traceback(mercy: Path, study: Path, command: Command, said_by: Any) -> None:
    file = mercy / "certificate.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "site": said_by}))
    for words in (
        ("predict", "mercy", str(study.parent / "mercy" / "test.csv"), "--out", "p.csv"),
        ("certificate", "verify", "mercy"),
        ("certificate", "verify", "mercy/certificate.json"),
        ("report", "mercy", "--out", "r.html"),
    ):
        code, out, err = command(*words)
        assert code in (0, 2), (words, err)
        assert "Traceback" not in err
        assert "\x1b" not in out + err
