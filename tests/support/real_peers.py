"""A consortium of real processes on this machine, each with a witness, and what their disks say."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.support.chaos import Chaos
from tests.support.nursery import Child, Nursery
from tests.support.recorded_peer import Record, read
from tests.support.traced import total

from gossamer.consortium.certificates import verify_set
from gossamer.consortium.demo import NAMES, prepare
from gossamer.consortium.files import now
from gossamer.consortium.journal import Contents, FileStorage, Journal
from gossamer.consortium.mass import Mass
from gossamer.consortium.peer import Participation
from gossamer.runtime.launch import end as stop
from gossamer.training.certificates import verify

SEEDED = {"privacy.noise.source": "seeded"}  # noise that a simulation draws again: for science only


# Noise whose calibration takes no time: a site that is started fifty times calibrates fifty times.
CONSTANT = {
    "privacy.noise.schedule": {"kind": "constant"},
    "privacy.clip": {"kind": "constant", "bound": 1.0},
}


class Peers:
    """Sites that `gossamer peer run` starts; `proxies` stand before each of them, if asked for."""

    def __init__(
        self,
        folder: Path,
        sites: int,
        rounds: int,
        *,
        deadline: float,
        tick: float = 0.1,
        wait: float = 300.0,
        changes: Mapping[str, Any] | None = None,
        for_science: bool = False,
        proxied: bool = False,
        namespaces: Mapping[str, str] | None = None,
        address_of: Callable[[str, int], str] = lambda name, port: f"127.0.0.1:{port}",
    ):
        self.folder, self.names, self.rounds, self.wait = folder, NAMES[:sites], rounds, wait
        folder.mkdir(exist_ok=True)
        self.proxies: dict[str, Chaos] = {}
        self._namespaces = dict(namespaces or {})
        self.study = prepare(
            folder, self.names, rounds, deadline=deadline, tick=tick, changes=changes, for_science=for_science,
            address_of=self._told if proxied else address_of,
        )  # fmt: skip
        self.children: dict[str, Child] = {}
        self._nursery = Nursery()

    def _told(self, name: str, port: int) -> str:
        self.proxies[name] = Chaos(port)
        return f"127.0.0.1:{self.proxies[name].port}"

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *error: object) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
        stop(self.children.values())
        self._nursery.close()
        for proxy in self.proxies.values():
            proxy.close()

    # Processes

    def start(self, *names: str) -> None:
        for name in names or self.names:
            place = self.folder / name
            words = [
                "peer", "run", str(self.study), "--site", str(place), "--out", str(self.part(name)),
                "--wait", f"{self.wait:g}",
            ]  # fmt: skip
            self.children[name] = self._nursery.start(
                words, place / "said.txt", place / "record", self._namespaces.get(name)
            )

    def kill(self, *names: str) -> None:
        """At once: nobody has a word of farewell."""
        for name in names:
            self.children[name].send_signal(signal.SIGKILL)
        for name in names:
            self.children[name].wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.children[name].send_signal(number)

    def finish(self, seconds: float) -> None:
        """Until all have ended well."""
        self.until(lambda: all(child.poll() is not None for child in self.children.values()), seconds)
        ended = {name: child.returncode for name, child in self.children.items()}
        assert set(ended.values()) == {0}, {name: self.said(name)[-400:] for name, code in ended.items() if code}

    def until(self, true: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            failed = {
                name: (child.returncode, self.said(name)[-400:])
                for name, child in self.children.items()
                if child.poll() not in (None, 0, -9)
            }
            assert not failed, failed
            assert time.monotonic() < end, {name: self.said(name)[-400:] for name in self.names}
            time.sleep(0.05)

    def round(self, name: str) -> int:
        """The last one whose exchange has ended: from the end of the record, which may be long."""
        path = self.folder / name / "record"
        if not path.exists():
            return -1
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            found = re.findall(rb'"step".*?"place": \[(\d+),', file.read())
        return int(found[-1]) if found else -1

    def moved_since_start(self, name: str) -> bool:
        """Has its process, as it is now, ended an exchange?"""
        record = self.record(name)
        return bool(record.times) and max(record.times.values()) > record.starts[-1]

    # What they left

    def part(self, name: str) -> Path:
        return self.folder / name / "part"

    def said(self, name: str) -> str:
        return (self.folder / name / "said.txt").read_text(errors="replace")

    def log(self, name: str) -> str:
        return (self.part(name) / "log").read_text(errors="replace")

    def record(self, name: str) -> Record:
        return read(self.folder / name / "record")

    def held(self, name: str) -> Contents:
        storage = FileStorage(self.part(name) / "journal")
        try:
            return Journal(storage).contents
        finally:
            storage.close()

    def masses(self) -> list[Mass]:
        """Of the sites that have ended, from their disks alone."""
        found = [self.held(name) for name in self.names]
        assert all(held.meta is not None for held in found)
        return [Mass.restore(held.meta, held.tensors, late=4) for held in found if held.meta is not None]

    def plan(self, name: str = "") -> Any:
        """The run as one site sees it."""
        name = name or self.names[0]
        return Participation.open(self.study, self.folder / name, self.part(name), now()).plan()

    def first(self) -> np.ndarray:
        """The model that all begin with."""
        o = self.plan()
        return o.stack.flatten(o.module).double().numpy().reshape(-1)

    def mass_errors(self) -> tuple[float, float]:
        """(|Σ w − n|, relative error of Σ x): against Σ x₀ − Σ η g of all steps that are on a disk."""
        lr, masses = self.plan().algorithm.lr, self.masses()
        x, w = total(masses)
        due = len(self.names) * self.first()
        for mass in masses:
            record = self.record(mass.name)
            begun = {place.round for place in record.steps} | {mass.place.round}
            for t in begun & record.used.keys():
                due = due - lr(t) * record.used[t][2]
        error = np.linalg.norm(x.numpy() - due) / np.linalg.norm(due)
        return abs(float(w) - len(self.names)), float(error)

    def steps(self, name: str) -> list[int]:
        """Of the site's ledger: one a draw that was paid for."""
        lines = self._ledger(name).read_text().splitlines()[1:]
        return [json.loads(line)["draw"] for line in lines]

    def _ledger(self, name: str) -> Path:
        (found,) = (self.part(name) / "run").glob("ledger*.jsonl")
        return found

    def released_once(self) -> None:
        """No (site, step) twice: neither in a ledger nor with two values anywhere."""
        for name in self.names:
            steps = self.steps(name)
            assert len(set(steps)) == len(steps)
            values = self.record(name).values
            assert all(len(found) == 1 for found in values.values())
            assert len(values) <= len(steps)

    def certificate(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.part(name) / "run" / "certificate.json").read_text()))

    def epsilon(self, name: str) -> float:
        return float(self.certificate(name)["epsilon_by_node"][self.names.index(name)]["proven"])

    def accuracies(self) -> list[float]:
        rows = [(self.part(name) / "run" / "metrics.jsonl").read_text().splitlines() for name in self.names]
        return [float(json.loads(lines[-1])["accuracy_mean"]) for lines in rows]

    def models(self) -> np.ndarray:
        """A row a site, in the order of the flat models."""
        from safetensors.torch import load_file

        found, order = [], [name for name, _ in self.plan().module.named_parameters()]
        for name in self.names:
            (file,) = (self.part(name) / "run").glob("models.*.safetensors")
            tensors = load_file(file)
            assert sorted(tensors) == sorted(order), (sorted(tensors), order)
            found.append(torch.cat([tensors[key].reshape(-1) for key in order]).double().numpy())
        return np.stack(found)

    def verified(self) -> None:
        """Every run by itself, and the certificates as a set."""
        for name in self.names:
            verify(self.part(name) / "run")
        verify_set([self.part(name) / "run" for name in self.names], self.study)


def refusals(log: str) -> list[str]:
    """Sentences of a log that say what was refused."""
    return [line for line in log.splitlines() if re.search("refused", line)]
