"""Real processes, certificates and files on loopback."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal
from tests.support.traced import total

from gossamer.accounting.ledger import read_all
from gossamer.consortium.certificates import verify_set
from gossamer.consortium.demo import NAMES, demo, prepare, start
from gossamer.consortium.journal import FileStorage, Journal
from gossamer.consortium.mass import Mass
from gossamer.runtime.launch import end as stop
from gossamer.training.certificates import verify

pytest.importorskip("grpc")


@pytest.mark.slow
def test_the_demo_is_the_simulator_and_its_certificates_verify(tmp_path: Path) -> None:
    said: list[str] = []
    sites, (accuracies, epsilon) = demo(tmp_path, sites=3, rounds=25, limit=240, say=said.append)
    mean = sum(accuracy for accuracy, _ in sites.values()) / 3
    assert abs(mean - sum(accuracies) / 3) < 0.08  # a wide margin: noise is drawn anew
    assert mean > 0.7
    for _, proven in sites.values():
        assert proven == pytest.approx(epsilon, rel=1e-6)
    assert any("3 certificates, each signed by its site's key, none missing" in line for line in said)
    assert not list(tmp_path.rglob("seal.key"))


@pytest.mark.slow
def test_with_the_same_seed_the_demo_is_the_simulator_ledger_for_ledger(tmp_path: Path) -> None:
    said: list[str] = []
    sites, (accuracies, epsilon) = demo(tmp_path, sites=4, rounds=30, limit=400, say=said.append, seed=5)
    for (name, (accuracy, proven)), simulated in zip(sites.items(), accuracies, strict=True):
        assert abs(accuracy - simulated) <= 0.005, name
        assert proven == pytest.approx(epsilon, rel=1e-9)
    for k, name in enumerate(sites):
        site, simulated = (
            read_all(folder)[k][1] for folder in (tmp_path / name / "part" / "run", tmp_path / "simulated" / "run")
        )
        assert len(site) == 30
        assert site == simulated  # draw, kind, multiplier, rate: all that an ε is computed from
    print("\n" + "\n".join(said[-7:]))
    assert "no privacy" in said[-1]


@pytest.mark.slow
def test_killed_sites_lose_no_mass_and_pay_nothing_twice(tmp_path: Path) -> None:
    names, rounds = NAMES[:3], 40
    study = prepare(tmp_path, names, rounds, deadline=20.0, tick=0.1)
    children = {name: start(tmp_path, study, name, wait=120) for name in names}
    end, kills = time.monotonic() + 240, 0
    try:
        while any(child.poll() is None for child in children.values()) and time.monotonic() < end:
            time.sleep(0.05)
            said = (tmp_path / "birch" / "output.txt").read_text()
            if kills < 2 and len(re.findall("^round [1-9]", said, re.M)) > 2 * kills:
                children["birch"].send_signal(signal.SIGKILL)
                children["birch"].wait()
                kills += 1
                children["birch"] = start(tmp_path, study, "birch", wait=120)
    finally:
        stop(children.values())
    assert kills == 2
    assert [child.returncode for child in children.values()] == [0, 0, 0]
    masses = []
    for k, name in enumerate(names):
        part = tmp_path / name / "part"
        storage = FileStorage(part / "journal")
        held = Journal(storage).contents
        storage.close()
        assert held.meta is not None
        masses.append(Mass.restore(held.meta, held.tensors, late=4))
        steps = [event.draw for event in read_all(part / "run")[k][1]]
        assert len(set(steps)) == len(steps) <= rounds
        certificate = json.loads((part / "run" / "certificate.json").read_text())
        assert certificate["epsilon_by_node"][k]["proven"] <= 8.0
        verify(part / "run")
    assert abs(float(total(masses)[1]) - 3) <= 1e-9
    verify_set([tmp_path / name / "part" / "run" for name in names], study)


def test_a_site_that_stops_ends_the_demo_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    def broken(folder: Path, study: Path, name: str, wait: float) -> subprocess.Popen[bytes]:
        (folder / name / "output.txt").write_text("gossamer: the disk is full.\n")
        sleep = "import time; time.sleep(60)" if name != "birch" else "raise SystemExit(2)"
        child = subprocess.Popen([sys.executable, "-c", sleep])
        children.append(child)
        return child

    children: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr("gossamer.consortium.demo.start", broken)
    with expect_refusal(key="birch", names="disk"):
        demo(tmp_path, sites=2, rounds=3, limit=30, say=lambda sentence: None)
    assert len(children) == 2
    assert all(child.returncode is not None for child in children)  # nobody is left behind
