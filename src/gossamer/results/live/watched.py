"""What the live page knows of a run: read from its directory alone, which may be growing, damaged or hostile.

Whatever is not what `gossamer run` writes there is left out; nothing here raises for the content of a file.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.accounting.ledger import parse_ledger
from gossamer.accounting.observers import against_all
from gossamer.errors import UserError
from gossamer.results.files import read_bytes
from gossamer.results.headline import SCORED, headline, judged, known, no_epsilon_covers
from gossamer.results.live.follow import Follower

NEEDED = ("config.toml", "manifest.json")
LARGEST = 16 << 20  # bytes of a file that is read as a whole
MOST_POINTS = 1024  # evaluations kept; of more, every second one is dropped, and so on
MOST_LEDGERS = 256
LAST_LINES = 12
_LONGEST_TEXT = 300
_FIGURES = ("mean", "min", "max")
STATES = ("up", "suspect", "down")


@dataclass(frozen=True)
class Evaluation:
    """A line of metrics.jsonl, reduced to what is shown; None for what is not there or no number."""

    round: int
    metric: str | None  # one that is known
    quality: tuple[float | None, float | None, float | None]  # mean, min, max over nodes
    consensus: float | None
    proven: float | None
    claimed: float | None
    bytes_sent: float | None
    seconds: float | None
    not_private: str | None  # why no ε covers quality and consensus
    links: Mapping[str, str] | None = None  # of a peer: how its links were then
    scored: int | None = None  # of how many nodes quality is, where that is a sample of them


@dataclass(frozen=True)
class View:
    """A run at one moment."""

    name: str
    rounds: int | None
    facts: tuple[str, ...]  # method, mode, runtime
    stamp: str | None
    budget: tuple[float, ...]  # ε asked for; several where nodes differ
    asked_of: str  # which figure must stay below it: "proven", or "claimed" in paper mode
    terms: tuple[str, ...]  # δ, adjacency, unit, observer, in words
    evaluations: tuple[Evaluation, ...]
    draws: tuple[int, ...]  # on file, by ledger
    certificate: Mapping[str, Any] | None
    topology: Mapping[str, Any] | None
    site: str | None  # of a peer's directory: its own name
    links: Mapping[str, str] | None  # of a peer: the other sites, up, suspect or down
    written: float | None  # when anything was last written


class WatchedRun:
    """Looks at a directory again and again, and reads only what is new."""

    def __init__(self, path: Path):
        if not os.path.lexists(path / NEEDED[0]) and os.path.lexists(path / "run" / NEEDED[0]):
            path = path / "run"  # the folder of a peer's study
        for name in NEEDED:
            if not os.path.lexists(path / name):
                missing = f"it has no {name}" if path.is_dir() else "there is no such directory"
                raise UserError(
                    f"{path} is not a run directory: {missing}; give one that `gossamer run` or `gossamer peer "
                    "run` made."
                )
        self._path = path
        self._metrics = Follower(path / "metrics.jsonl")
        self._history = _History()
        self._ledgers: dict[str, _Ledger] = {}
        self._whole: dict[str, tuple[object, Any]] = {}
        self._mark: object = None

    def look(self) -> View:
        other, lines = self._metrics.look()
        if other:  # a run that went on from a checkpoint has trimmed them
            self._history = _History()
        for line in lines:
            self._history.add(line)
        self._look_at_ledgers()
        manifest, config = _table(self._read("manifest.json")), _table(self._read("config.toml"))
        certificate = self._read("certificate.json")
        header = next((ledger.header for _, ledger in sorted(self._ledgers.items()) if ledger.header), {})
        noise = text(manifest.get("noise"), header.get("noise"), "system")
        topology, links = self._read("topology.json"), self._read("links.json")
        shown = _links(links) or (self._history.kept[-1].links if self._history.kept else None)
        return View(
            name=text(manifest.get("name"), config.get("name"), self._path.name),
            rounds=count(config.get("rounds")),
            facts=tuple(_facts(config, peer=shown is not None)),
            stamp=None if noise == "system" else noise,
            budget=tuple(_budget(config)),
            asked_of="claimed" if config.get("mode") == "paper" else "proven",
            terms=tuple(self._terms(_table(certificate), header, config)),
            evaluations=tuple(self._history.kept),
            draws=tuple(ledger.draws for _, ledger in sorted(self._ledgers.items())),
            certificate=certificate if isinstance(certificate, dict) else None,
            topology=topology if isinstance(topology, dict) else None,
            site=text(manifest.get("site"), config.get("site"), _table(links).get("site"), "") or None,
            links=shown,
            written=self._written(),
        )

    def _terms(
        self, certificate: Mapping[str, Any], header: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Iterator[str]:
        """An ε means nothing without these; what a running run has not yet said is named as unknown."""
        privacy = {
            **_table(config.get("privacy")),
            "unit": None,
        }  # there it is a word or a table, not a sentence

        def said(key: str) -> str:
            return text(certificate.get(key), header.get(key), privacy.get(key), "not yet on file")

        delta = next(
            (
                d
                for source in (certificate, header, privacy)
                if (d := number(source.get("delta"))) is not None
            ),
            None,
        )
        yield f"δ = {delta:g}" if delta is not None else "δ: not yet on file"
        yield said("adjacency")
        yield f"unit: {said('unit')}"
        planned = next((o for _, ledger in sorted(self._ledgers.items()) if (o := ledger.observer)), None)
        yield f"observer: {text(certificate.get('observer'), planned, 'as planned; the certificate will name it')}"

    def _look_at_ledgers(self) -> None:
        try:
            with os.scandir(self._path) as entries:
                names = sorted(
                    entry.name
                    for _, entry in zip(range(4 * MOST_LEDGERS), entries, strict=False)
                    if entry.name.startswith("ledger") and entry.name.endswith(".jsonl")
                )
        except OSError:
            return
        for name in names[:MOST_LEDGERS]:
            self._ledgers.setdefault(name, _Ledger(self._path / name)).look()

    def _read(self, name: str) -> Any:
        """A whole file as JSON or TOML, anew only when it has changed; None where it is missing or damaged."""
        path = self._path / name
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            self._whole.pop(name, None)
            return None
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        known, content = self._whole.get(name, (None, None))
        if mark != known:
            content = None
            if status.st_size <= LARGEST:
                try:
                    data = read_bytes(path, LARGEST).decode()
                    content = tomllib.loads(data) if name.endswith(".toml") else json.loads(data)
                except (UserError, ValueError, RecursionError):
                    pass
            self._whole[name] = (mark, content)
        return content

    def _written(self) -> float | None:
        names = ("metrics.jsonl", "certificate.json", "links.json", *self._ledgers)
        times = []
        for name in names:
            try:
                times.append(os.stat(self._path / name).st_mtime)
            except OSError:
                continue
        return min(max(times), time.time()) if times else None


class _Ledger:
    """How many draws are on file, and what the header says of them."""

    def __init__(self, path: Path):
        self._path, self._follower = path, Follower(path)
        self._forget()

    def _forget(self) -> None:
        self.draws, self.header, self.observer = -1, dict[str, Any](), ""
        self._first: list[bytes] = []

    def look(self) -> None:
        other, lines = self._follower.look()
        if other:
            self._forget()
        self.draws += len(lines)
        if len(self._first) < 2 and lines:
            self._first = [*self._first, *lines][:2]
            self._read_first()

    def _read_first(self) -> None:
        """The header; and by the first draw, against whom it was planned."""
        try:
            data = b"\n".join(self._first) + b"\n"
            ledger = parse_ledger(self._path, data, lenient=True)
            self.header, events = ledger.header, [event for line in ledger.lines for event in line.events]
            if events:
                self.observer = against_all(event.release.planned_for for event in events).describe()
        except (
            UserError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            self.header = {}


@dataclass
class _History:
    """Evaluations, at most so many; the last ones always."""

    kept: list[Evaluation] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        if (found := evaluation(row)) is None or (self.kept and found.round <= self.kept[-1].round):
            return
        self.kept.append(found)
        if len(self.kept) > MOST_POINTS:
            self.kept = [*self.kept[:-LAST_LINES:2], *self.kept[-LAST_LINES:]]


def evaluation(row: Any) -> Evaluation | None:
    done = count(_table(row).get("round"))
    if done is None or not isinstance(row.get("not_private", {}), dict):
        return None
    figures = judged(row)
    metric = headline(figures)
    metric = metric if isinstance(metric, str) and known(metric) else None
    hidden = no_epsilon_covers(row)
    if hidden is None and "hold_out" in figures:
        hidden = f"the hold-out is {text(figures['hold_out'])}"
    mean, low, high = (number(figures.get(f"{metric}_{key}")) for key in _FIGURES)
    return Evaluation(
        round=done,
        metric=metric,
        quality=(mean, low, high),
        consensus=number(figures.get("consensus_distance")),
        proven=number(figures.get("epsilon_proven")),
        claimed=number(figures.get("epsilon_claimed")),
        bytes_sent=number(figures.get("bytes_sent")),
        seconds=number(figures.get("seconds")),
        not_private=None if hidden is None else text(hidden, "they come from private records"),
        links=_links(row.get("links")),
        scored=len(sample) if isinstance(sample := figures.get(SCORED), list) else None,
    )


def number(value: Any) -> float | None:
    """A figure that can be drawn; what a file calls a number may be anything."""
    if type(value) not in (int, float) or not -1e100 < value < 1e100:
        return None
    return float(value) if abs(value) > 1e-100 else 0.0


def count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**12 else None


def text(*values: Any) -> str:
    """The first that is words, cut where it is too long for a page."""
    found = next((value for value in values if isinstance(value, str) and value), "")
    return found if len(found) <= _LONGEST_TEXT else f"{found[:_LONGEST_TEXT]}…"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _facts(config: Mapping[str, Any], *, peer: bool) -> Iterator[str]:
    if kind := text(_table(config.get("algorithm")).get("kind")):
        yield kind
    if mode := text(config.get("mode")):
        yield f"{mode} mode"
    if (baseline := text(config.get("baseline"), "none")) != "none":
        yield f"baseline: {baseline}"
    if peer:
        yield "one site of a consortium"
    elif kind := text(_table(config.get("runtime")).get("kind")):
        yield kind


def _budget(config: Mapping[str, Any]) -> list[float]:
    if config.get("baseline") == "non-private":
        return []
    asked = _table(config.get("privacy")).get("epsilon")
    asked = asked[:10_000] if isinstance(asked, list) else [asked]
    return sorted({value for one in asked if (value := number(one)) is not None})


def _links(content: Any) -> dict[str, str] | None:
    """{site: state}, or {site: {"state": state}}; a state that is none of ours is left out."""
    if not isinstance(content, dict):
        return None
    content = _table(content.get("links")) or content
    found = {}
    for site, state in list(content.items())[:1000]:
        word = text(state, _table(state).get("state"))
        if word in STATES:
            found[text(site, "?")] = word
    return found
