"""Two sites that train in one process: the real reader, ledger, journal and certificate over simulated links."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.consortia import RECIPE, Clock, accepted, on_disk, rows
from tests.support.refusals import expect_refusal
from tests.support.simulated_links import CrashError, Network, SimulatedLinks
from tests.support.spoilt_frames import changed
from tests.support.traced import total

from gossamer.consortium.certificates import verify_set
from gossamer.consortium.files import now
from gossamer.consortium.folders import join
from gossamer.consortium.frames import Frame, Place, unpack
from gossamer.consortium.journal import FileStorage, Journal
from gossamer.consortium.mass import Mass
from gossamer.consortium.peer import (
    JOURNAL,
    LINKS_FILE,
    PLANNED,
    OneSite,
    Participation,
    own_figures,
    progress_line,
    repeated,
    take_part,
    write_links,
)
from gossamer.consortium.study import Study as PackedStudy
from gossamer.consortium.study import pack
from gossamer.errors import UserError
from gossamer.results.rundir import OF_SITE, read_metrics
from gossamer.runtime.group import Group
from gossamer.training.certificates import verify
from gossamer.training.manifest import nodes_here
from gossamer.training.run import Outcome

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
    """A study of some sites on disk, and what came of it."""

    def __init__(self, folder: Path, *, sites: tuple[str, ...] = SITES, rounds: int = 4, wait: float = 20.0):
        self.folder, self.sites, self.wait = folder, sites, wait
        self.clock = Clock(now())
        self.north = on_disk(folder, *sites, clock=self.clock)
        rows(folder / "test.csv", 30, start=5000)
        for name in sites:
            self.fill(name)
        public = {"data.test": str(folder / "test.csv"), "rounds": rounds}
        _, self.file, _ = pack(self.north, RECIPE, public, deadline=2.0, tick=0.01)
        self.done: dict[str, Outcome] = {}
        self.said: dict[str, list[str]] = {}

    def fill(self, name: str) -> None:
        k = sum(map(ord, name))
        rows(self.folder / name / "records.csv", 90 + k % 20, start=10 * k)
        shutil.copy(self.folder / "test.csv", self.folder / name / "test.csv")

    def invite(self, name: str, at_round: int) -> None:
        """A site that joins in the middle."""
        request, _ = join(
            self.north.invite(name), listen="none", records=80, folder=self.folder / name,
            data=str(self.folder / name / "records.csv"), cap=8.0, clock=self.clock,
        )  # fmt: skip
        self.north.approve(name, request.read_bytes(), str(request), at_round=at_round)
        self.fill(name)

    def accept(self, *names: str) -> None:
        for name in names:
            accepted(self.folder / name, self.north, self.clock)

    def out(self, name: str) -> Path:
        found = self.folder / name / "part"
        found.mkdir(exist_ok=True)
        return found

    def take_part(self, network: Network, name: str, at: int | None = None, **options: Any) -> None:
        found = Participation.open(self.file, self.folder / name, self.out(name), now())
        say = self.said.setdefault(name, []).append
        options = {"wait": self.wait, "clock": network.clock, "say": say, **options}

        def links() -> Any:
            return network.links(name) if at is None else Dies(network.links(name), at)

        self.done[name] = take_part(found, self.out(name), open_links=links, **options)

    def run(self, *also: str, **work: Callable[[Network], None]) -> None:
        names = (*self.sites, *also)
        network = Network([*names, *(name for name in work if name not in names)])
        jobs: dict[str, Callable[[Network], None]] = {
            name: lambda network, name=name: self.take_part(network, name) for name in names
        }
        network.run({name: lambda job=job: job(network) for name, job in {**jobs, **work}.items()})

    def held(self, name: str) -> dict[str, Any]:
        """What is on the site's disk: the journal's last record."""
        storage = FileStorage(self.out(name) / JOURNAL)
        try:
            found = Journal(storage).contents
        finally:
            storage.close()
        assert found.meta is not None
        return {**found.meta, "mass": Mass.restore(found.meta, found.tensors, late=4)}

    def weight(self, *names: str) -> float:
        """Of these sites together, or of all, read from their disks."""
        return float(total([self.held(name)["mass"] for name in names or self.sites])[1])

    def steps(self, name: str) -> list[int]:
        (ledger,) = (self.out(name) / OF_SITE).glob("ledger*.jsonl")  # its own node's, and no other's
        return [json.loads(line)["draw"] for line in ledger.read_text().splitlines()[1:]]


def test_two_sites_train_and_their_certificates_are_one_set(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.run()
    said = verify_set([study.out(name) / OF_SITE for name in SITES], study.file)
    assert "2 certificates, each signed by its site's key, none missing" in said[0]
    assert abs(study.weight() - 2) <= 1e-9
    for node, name in enumerate(SITES):
        done = study.done[name]
        assert study.steps(name) == [0, 1, 2, 3]
        assert done.certificate["draws"] == [4 if i == node else None for i in range(2)]
        assert done.certificate["epsilon_by_node"][node]["proven"] <= 4.0
        assert done.certificate["epsilon_by_node"][1 - node]["stated_by"] == "the study's plan"
        assert any("the ledgers here agree" in sentence for sentence in verify(done.directory))
        assert read_metrics(done.directory / "metrics.jsonl")[-1]["round"] == 4
        assert "consensus_distance" not in done.result
        assert not (done.directory / "average.safetensors").exists()
        with expect_refusal(key="run", names="part"):
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
    verify_set([study.out(name) / OF_SITE for name in SITES], study.file)
    verify(study.out("mercy") / OF_SITE)


def test_without_its_journal_a_site_that_has_drawn_does_not_begin_anew(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)

    def killed(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 3)
        (study.out("mercy") / JOURNAL).unlink()
        with expect_refusal(key="journal", names="paid"):
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
        with expect_refusal(key="neighbour", names="clinic 3", remedy=True):
            study.take_part(network, "clinic")
        study.take_part(network, "clinic", leaving=True)

    study.run(mercy=killed, clinic=alone)
    assert study.done["clinic"].certificate["draws"][0] == len(study.steps("clinic")) < 4
    verify(study.out("clinic") / OF_SITE)


def test_nothing_is_drawn_in_isolation(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)
    network = Network(list(SITES))

    def alone() -> None:
        with expect_refusal(key="mercy", names="heard"):
            study.take_part(network, "clinic")

    network.run({"clinic": alone})
    assert study.steps("clinic") == []


def test_a_cap_is_kept(tmp_path: Path) -> None:
    study = Study(tmp_path)
    site = tmp_path / "mercy" / "site.toml"
    site.write_text(site.read_text().replace("cap = 8.0", "cap = 1.0"))
    with expect_refusal(key="privacy.cap", value="1", remedy=True):
        study.take_part(Network(list(SITES)), "mercy")
    assert not (study.out("mercy") / OF_SITE).exists()


# Sites that come and go

THREE = ("clinic", "lab", "mercy")


def with_changes(folder: Path, **more: Any) -> Study:
    """From round 3 of 6 on lab has left and wing is there. Everybody has accepted that."""
    study = Study(folder, sites=THREE, rounds=6, **more)
    study.north.leave("lab", 3)
    study.invite("wing", at_round=3)
    study.accept(*THREE, "wing")
    return study


def check_changed(study: Study) -> None:
    stay = ("clinic", "mercy", "wing")
    assert [study.held(name)["epoch"] for name in stay] == [3, 3, 3]
    assert study.held("clinic")["sites"] == list(stay)
    assert abs(study.weight(*stay) - 3) <= 1e-9
    for name in (*THREE, "wing"):
        steps = study.steps(name)
        assert len(set(steps)) == len(steps)
        assert set(steps) <= {"lab": {0, 1, 2}, "wing": {3, 4, 5}}.get(name, {*range(6)})
        assert any("the ledgers here agree" in sentence for sentence in verify(study.out(name) / OF_SITE))
    runs = [study.out(name) / OF_SITE for name in (*THREE, "wing")]
    said = verify_set(runs, study.file, roster_file=study.north.roster_file)
    assert "4 certificates, each signed by its site's key, none missing" in said[0]


def test_one_joins_and_one_leaves_at_a_round(tmp_path: Path) -> None:
    study = with_changes(tmp_path)
    study.run("wing")
    check_changed(study)
    assert [study.steps(name) for name in ("lab", "wing")] == [[0, 1, 2], [3, 4, 5]]
    assert "lab leaves at round 3" in study.said["lab"]
    assert "from round 3 on: clinic, mercy, wing" in study.said["mercy"]
    whole, part = (study.done[name].certificate for name in ("mercy", "wing"))
    # Half of the rounds cost less than what is printed, and than the whole study.
    assert part["epsilon_by_node"][3]["proven"] < whole["epsilon_by_node"][2]["proven"] <= 4.0
    last = read_metrics(study.done["wing"].directory / "metrics.jsonl")[-1]
    assert last["epsilon_proven"] >= part["epsilon_by_node"][3]["proven"]
    with expect_refusal(key="certificate.json", names="wing 4 --roster", remedy=True):
        verify_set([study.out("wing") / OF_SITE], study.file)


@pytest.mark.parametrize(
    ("name", "at"),
    [("mercy", 6), ("mercy", 9), ("mercy", 12), ("wing", 9), ("wing", 15), ("lab", 9), ("lab", 12)],
)
@pytest.mark.slow
def test_a_crash_around_the_change_loses_nothing(tmp_path: Path, name: str, at: int) -> None:
    study = with_changes(tmp_path)

    def killed(network: Network) -> None:
        try:
            study.take_part(network, name, at)
        except CrashError:
            network.sleep(name, 0.3)
            study.take_part(network, name)

    study.run("wing", **{name: killed})
    check_changed(study)


@pytest.mark.slow
def test_a_roster_that_is_accepted_meanwhile_is_followed(tmp_path: Path) -> None:
    study = Study(tmp_path, sites=THREE, rounds=20)

    def operator(network: Network) -> None:
        network.pause("operator", 0.1)
        study.north.leave("lab", 15)
        study.accept(*THREE)

    study.run(operator=operator)
    assert study.steps("lab") == [*range(15)]
    assert [study.held(name)["epoch"] for name in ("clinic", "mercy")] == [15, 15]
    assert abs(study.weight("clinic", "mercy") - 2) <= 1e-9
    assert "roster 5 is accepted and in force" in study.said["mercy"]


@pytest.mark.slow
def test_a_stopped_site_goes_on_in_an_epoch_that_began_without_it(tmp_path: Path) -> None:
    study = Study(tmp_path, sites=(*THREE, "ward"), rounds=60)
    study.north.revoke("lab", 8)
    stay = ("clinic", "mercy", "ward")
    at_home: list[int] = []

    def stopped(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 6)
        at_home.append(study.held("mercy")["epoch"])
        network.sleep("mercy", 2.3)
        study.accept("mercy")
        study.take_part(network, "mercy")

    def operator(network: Network) -> None:
        network.pause("operator", 0.02)
        study.accept("clinic", "lab", "ward")

    study.run(mercy=stopped, operator=operator)
    assert at_home == [0]
    assert [study.held(name)["epoch"] for name in stay] == [8, 8, 8]
    assert abs(study.weight(*stay) - 3) <= 1e-9
    assert len(study.steps("mercy")) < 60  # what it skipped is not paid
    assert "lab was revoked: what was spent is certified" in study.said["lab"]
    runs = {name: study.out(name) / OF_SITE for name in study.sites}
    said = verify_set([*runs.values()], study.file, roster_file=study.north.roster_file)
    assert "4 certificates" in said[0]
    said = verify_set([runs[name] for name in stay], study.file, roster_file=study.north.roster_file)
    assert any("lab was revoked and has no certificate here" in line for line in said)


def test_who_was_revoked_while_away_certifies_what_was_spent(tmp_path: Path) -> None:
    study = Study(tmp_path, wait=3.0)

    def revoked(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 3)
        study.north.revoke("mercy")
        study.accept("mercy")
        study.take_part(network, "mercy")

    def alone(network: Network) -> None:
        with expect_refusal(key="neighbour", names="clinic"):
            study.take_part(network, "clinic")

    study.run(mercy=revoked, clinic=alone)
    assert study.done["mercy"].certificate["draws"][1] == len(study.steps("mercy")) > 0


def test_the_last_one_left_ends(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.north.leave("clinic", 2)
    study.accept(*SITES)
    study.run()
    assert [study.steps(name) for name in SITES] == [[0, 1], [0, 1]]
    assert "no other site is left from round 2 on" in study.said["mercy"]
    verify_set([study.out(name) / OF_SITE for name in SITES], study.file, roster_file=study.north.roster_file)


@pytest.mark.slow
def test_who_lacks_the_roster_of_the_others_is_told(tmp_path: Path) -> None:
    study = Study(tmp_path, sites=THREE, rounds=8, wait=3.0)
    study.north.leave("lab", 3)
    study.accept("clinic", "lab")

    def behind(network: Network) -> None:
        with expect_refusal("neighbour", names="mercy"):
            study.take_part(network, "mercy")

    def alone(network: Network) -> None:
        with expect_refusal("neighbour", names="clinic"):
            study.take_part(network, "clinic")

    study.run(mercy=behind, clinic=alone)
    assert any("epoch of round 3: accept the newest roster" in one for one in study.said["mercy"])


# A member who sends what no site should

Lie = Callable[[Frame, int], Frame]  # (what an honest member would send now, its number) → what this one sends


def with_liar(study: Study, lie: Lie, *honest: str) -> None:
    """Mercy is where the others are and takes nothing; from their round 2 on it sends what `lie` makes."""
    identity = PackedStudy.read(study.file).digest
    ended: list[str] = []

    def mercy(network: Network) -> None:
        links, number = network.links("mercy"), dict.fromkeys(honest, 0)
        hello = Frame(
            kind="hello", study=identity, epoch=0, sender="mercy", receiver="", place=Place(0, -1), incarnation=1,
            made=Place(0, -1),
        )  # fmt: skip
        while len(ended) < len(honest):
            for to in honest:
                made = changed(hello, receiver=to)
                links.send(to, made.pack(), 0.0)
                if hello.place.round >= 2:
                    lied = lie(changed(made, sequence=number[to], following=number[to] + 1), number[to])
                    number[to] += lied.kind == "share"
                    links.send(to, lied.pack(), 0.0)
            for _ in range(4):
                arrival = links.receive(network.clock() + 0.02)
                if arrival is not None:
                    heard = unpack(arrival.message, sender=arrival.sender, receiver="mercy", study=identity)
                    at = max(hello.place, heard.place)
                    hello = changed(hello, place=at, made=at)

    def site(network: Network, name: str) -> None:
        try:
            study.take_part(network, name)
        finally:
            ended.append(name)

    study.run(mercy=mercy, **{name: lambda network, name=name: site(network, name) for name in honest})


def share(frame: Frame, value: float, weight: float, like: int = 6) -> Frame:
    w = torch.full((1,), weight, dtype=torch.float64)
    return changed(frame, kind="share", content=(torch.full((like,), value), w))


def far(frame: Frame, place: Place, epoch: int = 0) -> Frame:
    return changed(frame, place=place, made=place, epoch=epoch, following=0, sequence=0)


LIES: dict[str, tuple[Lie, str]] = {
    "a round beyond all": (lambda frame, n: far(frame, Place(1 << 60, 0)), "the study has 12"),
    "the last round": (lambda frame, n: far(frame, Place(12, 0)), ""),
    "an epoch beyond all": (lambda frame, n: far(frame, Place(11, 0), 1 << 30), "the study has 12"),
    "an epoch that nobody has": (lambda frame, n: far(frame, Place(11, 0), 5), ""),
    "values near the end of float32": (lambda frame, n: share(frame, 3.3e38, 0.25), "no model is above"),
    "all weight, again and again": (
        lambda frame, n: share(frame, 0.0, 3.0),
        "are more than all sites have",
    ),
}


FAST = ("the last round", "values near the end of float32", "all weight, again and again")


@pytest.mark.parametrize("case", [pytest.param(case, marks=[] if case in FAST else pytest.mark.slow) for case in LIES])
def test_a_member_who_lies_ends_nobodys_study_and_is_named(
    tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    lie, why = LIES[case]
    study = Study(tmp_path, sites=THREE, rounds=12)
    with_liar(study, lie, "clinic", "lab")
    refused = [line for line in caplog.messages if "was refused" in line]
    assert all(line.startswith("a frame of mercy was refused") for line in refused)
    assert any(why in line for line in refused) or not why
    for node, name in enumerate(("clinic", "lab")):
        found = study.done[name].certificate
        assert (found["rounds"], found["draws"][node]) == (12, 12)
        assert study.steps(name) == [*range(12)]
        assert all(torch.isfinite(value).all() for value in study.held(name)["mass"].like)
    assert study.weight("clinic", "lab") <= 3 * (1 + 1e-9)


@pytest.mark.slow
def test_weight_that_is_made_up_bit_by_bit_is_bounded_and_its_source_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = Study(tmp_path, sites=THREE, rounds=20)
    with_liar(study, lambda frame, n: share(frame, 0.0, 0.9), "clinic", "lab")
    refused = [line for line in caplog.messages if "was refused" in line]
    assert refused
    assert all(line.startswith("a frame of mercy was refused") for line in refused)
    assert study.weight("clinic", "lab") <= 12  # 3 at each, and what waits for mercy
    assert all(study.done[name].certificate["rounds"] == 20 for name in ("clinic", "lab"))


def test_one_other_site_that_says_it_is_at_the_end_is_not_enough_for_a_certificate(tmp_path: Path) -> None:
    study = Study(tmp_path, sites=("clinic", "mercy"), rounds=12)
    with expect_refusal(key="mercy", names="12", remedy=True):
        with_liar(study, lambda frame, n: far(frame, Place(12, 0)), "clinic")
    assert not (study.out("clinic") / OF_SITE / "certificate.json").exists()
    network = Network(["clinic", "mercy"])
    network.run({"clinic": lambda: study.take_part(network, "clinic", leaving=True)})
    found = study.done["clinic"].certificate
    assert 0 < found["rounds"] <= found["draws"][0] < 12
    verify(study.out("clinic") / OF_SITE)


@pytest.mark.slow
def test_a_certificate_states_the_rounds_that_were_run(tmp_path: Path) -> None:
    study = Study(tmp_path, sites=THREE, rounds=40)

    def away(network: Network) -> None:
        with pytest.raises(CrashError):
            study.take_part(network, "mercy", 8)
        network.sleep("mercy", 2.3)
        study.take_part(network, "mercy")

    study.run(mercy=away)
    rounds = {name: study.done[name].certificate["rounds"] for name in THREE}
    assert rounds["clinic"] == rounds["lab"] == 40
    assert rounds["mercy"] == len(study.steps("mercy")) < 40
    said = verify_set([study.out(name) / OF_SITE for name in THREE], study.file)
    assert any(f"in {rounds['mercy']} rounds" in line for line in said)


def test_a_site_states_its_own_node_and_nobody_else_s() -> None:
    site: Group = OneSite("mercy", 2, 4)
    assert site.join([7], per_node=True) == [None, None, 7, None]
    assert site.join([7]) == [7]
    assert nodes_here(site) == [2]
    assert [site.whose(node) for node in range(4)] == [PLANNED, PLANNED, "mercy", PLANNED]
    assert site.spread  # so that ledgers are forced to disk
    assert torch.equal(site.mean(torch.ones(1, 3)), torch.ones(3))


def test_figures_of_one_site_say_nothing_of_all() -> None:
    row = {
        "accuracy_mean": 0.5,
        "accuracy_average_model": 0.5,
        "consensus_distance": 0.0,
        "push_sum_mass": 0.9,
    }
    assert own_figures(row) == {"accuracy_mean": 0.5, "push_sum_weight": 0.9}


def test_a_line_has_who_is_away() -> None:
    row = {"round": 4, "accuracy_mean": 0.5, "epsilon_proven": 1.25, "links": {"a": "up", "b": "down"}}
    assert progress_line(row, 10) == "round 4 of 10, accuracy 0.500, planned ε 1.25; b down"
    assert progress_line({**row, "epsilon_proven": None, "links": {}}, 10) == "round 4 of 10, accuracy 0.500"


def test_a_change_is_on_file_soon_and_the_last_state_stays(tmp_path: Path) -> None:
    states = {"b": "up"}

    def on_file() -> object:
        path = tmp_path / LINKS_FILE
        return json.loads(path.read_text()) if path.exists() else None

    def eventually(due: str) -> bool:
        end = time.monotonic() + 60
        while on_file() != {"site": "a", "links": {"b": due}} and time.monotonic() < end:
            time.sleep(0.005)
        return time.monotonic() < end

    with repeated(lambda: write_links(tmp_path, "a", states), 0.01):
        assert eventually("up")
        states["b"] = "suspect"
        assert eventually("suspect")
        states["b"] = "down"
    assert on_file() == {"site": "a", "links": {"b": "down"}}
    assert [path.name for path in tmp_path.iterdir()] == [LINKS_FILE]


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    write_links(tmp_path / "gone", "a", {})
