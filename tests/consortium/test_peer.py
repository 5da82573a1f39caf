"""Two sites that train in one process: the real reader, ledger, journal and certificate over simulated links."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.consortia import RECIPE, Clock, on_disk, rows

from gossamer.consortium.certificates import verify_set
from gossamer.consortium.names import now
from gossamer.consortium.packing import pack
from gossamer.consortium.peer import JOURNAL, RUN, Manner, Outcome, own_figures, take_part
from gossamer.consortium.ready import ready
from gossamer.errors import UserError
from gossamer.run.certificates import verify
from gossamer.runtime.peers.journal import FileStorage, Journal
from gossamer.runtime.peers.mass import Mass, total
from gossamer.runtime.peers.simulated import CrashError, Network, SimulatedLinks

SITES = ("clinic", "mercy")


class Dies:
    """Links of a process that is killed at its n-th message."""

    def __init__(self, links: SimulatedLinks, at: int):
        self._links, self._left = links, at

    def send(self, to: str, parcel: bytes, deadline: float) -> None:
        self._left -= 1
        if self._left < 0:
            raise CrashError
        self._links.send(to, parcel, deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._links, name)


class Study:
    """A study of two sites on disk, and what came of it."""

    def __init__(self, folder: Path, *, wait: float = 20.0):
        self.folder, self.wait = folder, wait
        self.north = on_disk(folder, *SITES, clock=Clock(now()))
        for k, name in enumerate(SITES):
            rows(folder / name / "records.csv", 90 + k, start=1000 * k)
        rows(folder / "test.csv", 30, start=5000)
        for name in SITES:
            shutil.copy(folder / "test.csv", folder / name / "test.csv")
        public = {"data.test": str(folder / "test.csv")}
        _, self.file, _ = pack(self.north, RECIPE, public, deadline=2.0, tick=0.01)
        self.done: dict[str, Outcome] = {}

    def out(self, name: str) -> Path:
        found = self.folder / name / "part"
        found.mkdir(exist_ok=True)
        return found

    def take_part(self, network: Network, name: str, at: int | None = None, **manner: Any) -> None:
        found = ready(self.file, self.folder / name, self.out(name), now())
        how = Manner(**{"wait": self.wait, "clock": network.clock, **manner})

        def links(_: Any) -> Any:
            return network.links(name) if at is None else Dies(network.links(name), at)

        self.done[name] = take_part(found, self.out(name), how, links)

    def run(self, **work: Callable[[Network], None]) -> None:
        network = Network(list(SITES))
        jobs: dict[str, Callable[[Network], None]] = {
            name: lambda network, name=name: self.take_part(network, name) for name in SITES
        }
        network.run({name: lambda job=job: job(network) for name, job in {**jobs, **work}.items()})

    def weight(self) -> float:
        """Of all sites together, read from their disks."""
        masses = []
        for name in SITES:
            storage = FileStorage(self.out(name) / JOURNAL)
            held = Journal(storage).contents
            storage.close()
            masses.append(Mass.restore(held.meta, held.tensors, late=4))
        return float(total(masses)[1])

    def steps(self, name: str) -> list[int]:
        (ledger,) = (self.out(name) / RUN / "ledger").glob("*.jsonl")  # its own node's, and no other's
        return [json.loads(line)["step"] for line in ledger.read_text().splitlines()[1:]]


def test_two_sites_train_and_their_certificates_are_one_set(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.run()
    said = verify_set([study.out(name) / RUN for name in SITES], study.file)
    assert "2 certificates, each signed by its site's key, none missing" in said[0]
    assert abs(study.weight() - 2) <= 1e-9
    for node, name in enumerate(SITES):
        done = study.done[name]
        assert study.steps(name) == [0, 1, 2, 3]
        assert done.certificate["draws"] == [4 if i == node else None for i in range(2)]
        assert done.certificate["epsilon_by_node"][node]["proven"] <= 4.0
        assert done.certificate["epsilon_by_node"][1 - node]["stated_by"] == "the study's plan"
        assert any("the ledgers here verify" in sentence for sentence in verify(done.directory))
        assert done.figures["round"] == 4
        assert "consensus_distance" not in done.figures
        assert not (done.directory / "average.safetensors").exists()
        with pytest.raises(UserError, match="its part is done"):
            study.take_part(Network(list(SITES)), name)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_a_killed_site_goes_on_and_pays_nothing_twice(tmp_path: Path, at: int) -> None:
    study = Study(tmp_path)

    def killed(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", at)
        network.sleep("mercy", 0.5)
        study.take_part(network, "mercy")

    study.run(mercy=killed)
    assert abs(study.weight() - 2) <= 1e-9
    steps = study.steps("mercy")
    assert len(set(steps)) == len(steps) <= 4
    verify_set([study.out(name) / RUN for name in SITES], study.file)
    verify(study.out("mercy") / RUN)


def test_without_its_journal_a_site_that_has_drawn_does_not_begin_anew(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)

    def killed(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 3)
        (study.out("mercy") / JOURNAL).unlink()
        with pytest.raises(UserError, match=r"journal is missing or empty, and [2-4] draws were paid for"):
            study.take_part(network, "mercy")

    def alone(network: Network) -> None:
        with suppress(UserError):  # what it does is another test's
            study.take_part(network, "clinic")

    study.run(mercy=killed, clinic=alone)
    network = Network(list(SITES))
    network.run({"mercy": lambda: study.take_part(network, "mercy", leaving=True)})
    spent = study.done["mercy"].certificate["epsilon_by_node"][1]["proven"]
    assert len(study.steps("mercy")) < 4
    assert spent < 4.0


def test_a_site_whose_neighbours_are_gone_stops_and_may_leave(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)

    def killed(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 1)

    def alone(network: Network) -> None:
        with pytest.raises(UserError, match=r"no neighbour of clinic was heard for 3 s.*peer leave"):
            study.take_part(network, "clinic")
        study.take_part(network, "clinic", leaving=True)

    study.run(mercy=killed, clinic=alone)
    assert study.done["clinic"].certificate["draws"][0] == len(study.steps("clinic")) < 4
    verify(study.out("clinic") / RUN)


def test_nothing_is_drawn_in_isolation(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)
    network = Network(list(SITES))

    def alone() -> None:
        with pytest.raises(UserError, match="none of mercy was heard; nothing was drawn"):
            study.take_part(network, "clinic")

    network.run({"clinic": alone})
    assert study.steps("clinic") == []


def test_a_cap_is_kept(tmp_path: Path) -> None:
    study = Study(tmp_path)
    site = tmp_path / "mercy" / "site.toml"
    site.write_text(site.read_text().replace("cap = 8.0", "cap = 1.0"))
    with pytest.raises(UserError, match="cap"):
        study.take_part(Network(list(SITES)), "mercy")
    assert not (study.out("mercy") / RUN).exists()


def test_sites_that_come_and_go_meanwhile_are_refused_by_name(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.north.leave("clinic", 2)
    from tests.support.consortia import accepted

    accepted(tmp_path / "mercy", study.north, Clock(now()))
    with pytest.raises(UserError, match="changes the sites of readmission at round 2"):
        study.take_part(Network(list(SITES)), "mercy")


def test_figures_of_one_site_say_nothing_of_all() -> None:
    row = {
        "accuracy_mean": 0.5,
        "accuracy_average_model": 0.5,
        "consensus_distance": 0.0,
        "push_sum_mass": 0.9,
    }
    assert own_figures(row) == {"accuracy_mean": 0.5, "push_sum_weight": 0.9}
