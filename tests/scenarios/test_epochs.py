"""Sites that join, leave and are revoked in the middle of a study: real processes over mutual TLS, and kill -9."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.simulated_links import MemoryStorage
from tests.support.traced import total

from gossamer.consortium.certificates import verify_set
from gossamer.consortium.demo import _free_ports, prepare, start
from gossamer.consortium.folders import Coordinator, accept, join
from gossamer.consortium.journal import Journal
from gossamer.consortium.mass import Mass
from gossamer.runtime.launch import end as stop
from gossamer.training.certificates import verify

pytest.importorskip("grpc")
LATE = 4  # S of the study
DEADLINE, TICK = 25.0, 0.25  # the first draw of a process compiles, which takes long on a busy machine


class Sites:
    """Processes of a study that are started again when they end with an error, as systemd would."""

    def __init__(self, folder: Path, names: tuple[str, ...], rounds: int):
        self.folder, self.names = folder, names
        self.study = prepare(folder, names, rounds, deadline=DEADLINE, tick=TICK)
        self.north = Coordinator(folder / "authority")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def invite(self, name: str, at_round: int) -> None:
        head, *rows = (self.folder / f"{self.names[0]}.csv").read_bytes().splitlines(keepends=True)
        records = b"".join([head, *rows[1:]])  # the same file would be on the same account
        (self.folder / f"{name}.csv").write_bytes(records)
        request, _ = join(
            self.north.invite(name), listen=f"127.0.0.1:{_free_ports(1)[0]}", records=records.count(b"\n") - 1,
            folder=self.folder / name, data=str(self.folder / f"{name}.csv"), cap=8.5,
        )  # fmt: skip
        self.north.approve(name, request.read_bytes(), str(request), at_round=at_round)
        site = self.folder / name / "site.toml"
        site.write_text(site.read_text().replace('# test = "test.csv"', 'test = "../test.csv"'))

    def accept(self, *names: str) -> None:
        roster = self.north.roster_file
        for name in names:
            accept(self.folder / name / "site.toml", roster.read_bytes(), str(roster), lambda changes: True)

    def start(self, *names: str) -> None:
        for name in names:
            self.running[name] = start(self.folder, self.study, name, wait=240.0)

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].send_signal(signal.SIGKILL)
        for name in names:
            self.running.pop(name).wait()

    def part(self, name: str) -> Path:
        return self.folder / name / "part"

    def said(self, name: str) -> str:
        path = self.folder / name / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def on_disk(self, name: str) -> dict[str, Any]:
        """The journal's last record, whether or not its process runs."""
        journal = self.part(name) / "journal"
        held = Journal(MemoryStorage(data=journal.read_bytes() if journal.exists() else b"")).contents
        if held.meta is None:
            return {"epoch": -1, "place": [-1, -1]}
        return {**held.meta, "mass": Mass.restore(held.meta, held.tensors, late=LATE)}

    def weight(self, *names: str) -> float:
        return float(total([self.on_disk(name)["mass"] for name in names])[1])

    def until(self, true: Callable[[], bool], seconds: float = 400.0, every: float = 0.05) -> None:
        end = time.monotonic() + seconds
        while not true():
            for name, process in list(self.running.items()):
                if process.poll() not in (None, 0):
                    self.start(name)
            assert time.monotonic() < end, {name: self.said(name)[-500:] for name in self.running}
            time.sleep(every)

    def ended(self, *names: str) -> bool:
        return all((self.part(name) / "run" / "certificate.json").exists() for name in names)

    def close(self) -> None:
        stop(self.running.values())


def released(run: Path) -> list[int]:
    (ledger,) = run.glob("ledger*.jsonl")
    return [json.loads(line)["draw"] for line in ledger.read_text().splitlines()[1:]]


def check_ended(sites: Sites, everyone: tuple[str, ...], last: tuple[str, ...], epoch: int) -> None:
    """From the disks: all mass of the last epoch, nothing released twice, and certificates that are one set."""
    assert [sites.on_disk(name)["epoch"] for name in last] == [epoch] * len(last)
    assert abs(sites.weight(*last) - len(last)) <= 1e-9
    for name in everyone:
        run = sites.part(name) / "run"
        steps = released(run)
        assert len(set(steps)) == len(steps), "a step was released twice"
        verify(run)
        certificate = json.loads((run / "certificate.json").read_text())
        assert certificate["epsilon_by_node"][certificate["site"]["node"]]["proven"] <= 8.0
    said = verify_set([sites.part(name) / "run" for name in everyone], sites.study, roster_file=sites.north.roster_file)
    assert f"{len(everyone)} certificates, each signed by its site's key, none missing" in said[0]
    assert not re.search("Traceback", "".join(map(sites.said, everyone)))


SECOND, THIRD = ("alder", "birch", "elm", "fir"), ("alder", "birch", "fir")


def changing(folder: Path, rounds: int) -> Sites:
    """At round 30 cedar leaves and fir joins; everybody has accepted that."""
    sites = Sites(folder, ("alder", "birch", "cedar", "elm"), rounds)
    sites.north.leave("cedar", 30)
    sites.invite("fir", at_round=30)
    sites.accept(*sites.names, "fir")
    return sites


@pytest.mark.slow
def test_one_joins_one_leaves_one_is_revoked(tmp_path: Path) -> None:
    """All are killed as soon as all are in the new epoch. Round 60: elm is out, and its links go down before."""
    sites = changing(tmp_path, rounds=70)
    everyone = (*sites.names, "fir")
    try:
        sites.start("fir")
        sites.until(lambda: "fir joins at round 30 and waits" in sites.said("fir"))
        sites.start(*sites.names)
        sites.until(lambda: all(sites.on_disk(name)["epoch"] == 30 for name in SECOND), every=0.02)
        sites.kill(*sites.running)
        assert abs(sites.weight(*SECOND) - 4) <= 1e-9
        rounds = [sites.on_disk(name)["round"] for name in SECOND]
        print(f"all mass is there in rounds {rounds}")
        assert min(rounds) >= 30
        assert max(rounds) <= 30 + LATE
        sites.start(*(name for name in everyone if not sites.ended(name)))
        sites.until(lambda: sites.ended("cedar"))
        assert released(sites.part("cedar") / "run") == [*range(30)]
        sites.until(lambda: all(sites.on_disk(name)["round"] >= 36 for name in SECOND))
        took = revoke(sites, "elm", THIRD)
        print(f"links down after {took:.2f} s")
        assert took <= 30.0  # a second on a quiet machine
        sites.until(lambda: sites.ended(*THIRD))
        assert not sites.ended("elm")
        sites.accept("elm")  # it hears of it last
        sites.until(lambda: sites.ended("elm"))
        assert "elm was revoked" in sites.said("elm")
    finally:
        sites.close()
    check_ended(sites, everyone, THIRD, 60)
    assert min(released(sites.part("fir") / "run")) >= 30


def revoke(sites: Sites, name: str, others: tuple[str, ...]) -> float:
    """Seconds from the last acceptance until all others have cut it off, and it has found nobody who lets it in."""
    made = sites.north.revoke(name, at_round=60)
    sites.accept(*others)
    began = time.monotonic()
    # A site says so once its links are cut; gRPC's idle connection below them may last some seconds longer.
    cut = f"roster {made.version} is accepted and in force"
    sites.until(lambda: all(cut in sites.said(other) for other in others), 60, 0.02)
    took = time.monotonic() - began
    log = sites.part(name) / "log"
    refused = re.compile(r"no link to '(\w+)' at \S+: your certificate is not in the roster here")
    sites.until(lambda: {*others} <= {*refused.findall(log.read_text())}, 60)
    return took


@pytest.mark.slow
def test_killed_before_in_and_after_the_change(tmp_path: Path) -> None:
    sites = changing(tmp_path, rounds=150)
    everyone = (*sites.names, "fir")
    try:
        sites.start(*everyone)
        sites.until(lambda: sites.on_disk("birch")["place"] >= [29, 0], every=0.02)
        sites.kill("birch")  # before
        assert sites.on_disk("birch")["epoch"] == 0
        sites.start("birch")
        sites.until(lambda: sites.on_disk("elm")["place"] >= [30, -1], every=0.02)
        sites.kill("elm")  # while it waits for the others to drain
        print(f"killed at {sites.on_disk('elm')['place']} of epoch {sites.on_disk('elm')['epoch']}")
        sites.start("elm")
        sites.until(lambda: sites.on_disk("fir")["epoch"] == 30, every=0.02)
        sites.kill("fir")  # after
        sites.start("fir")
        sites.until(lambda: sites.ended(*everyone))
    finally:
        sites.close()
    check_ended(sites, everyone, SECOND, 30)
