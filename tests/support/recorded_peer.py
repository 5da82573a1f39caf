"""`gossamer peer run` with a witness: what every step used and moved goes to a file, a line each.

    python -m tests.support.recorded_peer FILE peer run STUDY --site SITE ...

A line is written when it has happened and survives kill −9. Lines of a round that a crash undid stand there too: the
last one of a round is the one that counts.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.support.traced import Step, TracedExchange
from torch import Tensor

from gossamer.consortium.exchange import PeerExchange
from gossamer.consortium.frames import Place
from gossamer.consortium.journal import JournaledGradient


@dataclass
class Record:
    """What one site did, as its witness saw it."""

    steps: dict[Place, Step] = field(default_factory=dict)
    used: dict[int, tuple[int, int, Any]] = field(default_factory=dict)  # round → number, draw, gradient
    values: dict[int, set[bytes]] = field(default_factory=dict)  # number → all values it ever had
    times: dict[int, float] = field(default_factory=dict)  # round → when its exchange ended
    starts: list[float] = field(default_factory=list)


def read(path: Path) -> Record:
    found = Record()
    for line in _lines(path):
        if line["kind"] == "start":
            found.starts.append(line["at"])
        elif line["kind"] == "used":
            raw = base64.b64decode(line["value"])
            found.used[line["round"]] = (line["use"], line["draw"], np.frombuffer(raw, "<f4").astype(float))
            found.values.setdefault(line["use"], set()).add(raw)
        else:
            place = Place(*line["place"])
            sent = {to: (number, share) for to, (number, share) in line["sent"].items()}
            added = [(sender, incarnation, number) for sender, incarnation, number in line["added"]]
            found.steps[place] = Step(place, line["channel"], sent, added, line["back"])
            found.times[place.round] = line["at"]
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().split(b"\n"):
            try:
                yield json.loads(line)
            except ValueError:  # the line that was being written when the process was killed
                continue


class _Witness:
    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._exchange: Any = None
        self._write("start")

    def _write(self, kind: str, **said: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.time(), **said})
        os.write(self._file, b"\n" + line.encode())  # the break first: a torn line spoils no other

    def step(self, step: Step) -> None:
        place = [step.place.round, step.place.call]
        self._write(
            "step",
            place=place,
            channel=step.channel,
            sent=step.sent,
            added=step.added,
            back=step.returned_from,
        )

    def exchange(self, **given: Any) -> PeerExchange:
        self._exchange = TracedExchange(**given, trace=self.step)
        return self._exchange

    def journaled(self, *given: Any, **more: Any) -> Any:
        return _Seen(JournaledGradient(*given, **more), self)

    def used(self, use: int, draw: int, value: Tensor) -> None:
        raw = value.detach().to(torch.float32).numpy().astype("<f4").tobytes()
        at = self._exchange.place.round
        self._write("used", round=at, use=use, draw=draw, value=base64.b64encode(raw).decode())


class _Seen:
    """A gradient that tells its witness."""

    def __init__(self, grad: JournaledGradient, witness: _Witness):
        self._grad, self._witness = grad, witness

    @property
    def uses(self) -> int:
        return self._grad.uses

    @uses.setter
    def uses(self, number: int) -> None:
        self._grad.uses = number

    @property
    def draws(self) -> int:
        return self._grad.draws

    def __call__(self, points: Tensor) -> Tensor:
        use, before = self._grad.uses, self._grad.draws
        value = self._grad(points)
        self._witness.used(use, before, value)
        return value


def witnessed(record: Path, words: Sequence[str]) -> None:
    """The command `gossamer peer run …` in this process; ends it."""
    from gossamer.cli import main as gossamer
    from gossamer.consortium import peer

    witness = _Witness(record)
    peer.PeerExchange, peer.JournaledGradient = witness.exchange, witness.journaled  # type: ignore[assignment,misc]
    sys.argv[1:] = words
    gossamer()


if __name__ == "__main__":
    witnessed(Path(sys.argv[1]), sys.argv[2:])
