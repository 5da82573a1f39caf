"""`gossamer watch`: a page about a run that goes on, or has ended, served to this machine alone.

The run's directory may be growing, damaged or hostile: what is not what `gossamer run` writes is left out, and nothing
here raises for the content of a file. The server answers on loopback, to its own name, to requests with the token. The
token is in the address and in no cookie: a browser sends the cookies of 127.0.0.1 to every port there, and so to
servers of other users of the machine.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from markupsafe import Markup

from gossamer.accounting.chain import LedgerError, open_to_read
from gossamer.accounting.ledger import parse_ledger
from gossamer.accounting.observers import against_all
from gossamer.errors import UserError
from gossamer.results import charts
from gossamer.results.certificate import SEEDED
from gossamer.results.charts import DASH, RED, Axis, Links, Plot, Series
from gossamer.results.console import size_text
from gossamer.results.headline import SCORED, headline, in_per_cent, judged, known, no_epsilon_covers, unit
from gossamer.results.pages import environment, render
from gossamer.results.rundir import read_bytes

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
REQUEST_SECONDS = 5.0  # for a whole request, however slowly it comes
LOOK_EVERY, BEAT_EVERY = 0.5, 10.0  # seconds
NEEDED = ("config.toml", "manifest.json")
SECTIONS = ("head", "privacy", "quality", "consensus", "epsilon", "topology", "traffic", "log")
LARGEST = 16 << 20  # bytes of a file that is read as a whole
AT_ONCE = 8 << 20  # bytes read of a growing file in one look; the rest is read in the next one
LONGEST = 1 << 20  # bytes of a line; a run writes none that is longer
MOST_POINTS = 1024  # evaluations; of more, every second one is dropped, and so on
MOST_LEDGERS = 256
LAST_LINES = 12
# The state of a link is told by colour, by dashes and by a sign in its middle.
STATES = {"up": ("#00714f", "", "✓"), "suspect": ("#b35900", "7 4", "?"), "down": (RED, "2 5", "✕")}
_LONGEST_TEXT, _MOST_LINKS = 300, 40
_REMEMBERED = 64  # bytes before our place: where they differ, it is another file
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def number(value: Any) -> float | None:
    """A figure that can be drawn; a file may call anything a number."""
    if type(value) not in (int, float) or not -1e100 < value < 1e100:
        return None
    return float(value) if abs(value) > 1e-100 else 0.0


def count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**12 else None


def text(*values: Any) -> str:
    """The first that is a text, cut where it is too long for a page."""
    first = next((value for value in values if isinstance(value, str) and value), "")
    return first if len(first) <= _LONGEST_TEXT else f"{first[:_LONGEST_TEXT]}…"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


class Follower:
    """New complete lines of a file that is appended to while it is read; memory is bounded."""

    def __init__(self, path: Path):
        self._path = path
        self._reset()

    def _reset(self) -> None:
        self._file: tuple[int, int] | None = None
        self._offset, self._before, self._rest, self._skipping = 0, b"", b"", False

    def look(self) -> tuple[bool, list[bytes]]:
        """(is it another file than before, complete lines since the last look). A missing file has none."""
        try:
            with open_to_read(self._path) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                other = self._file is not None and (identity != self._file or status.st_size < self._offset)
                if not other and self._before:
                    file.seek(self._offset - len(self._before))
                    other = file.read(len(self._before)) != self._before
                if other:
                    self._reset()
                self._file = identity
                file.seek(self._offset)
                data = file.read(AT_ONCE)
        except (OSError, LedgerError):  # not there yet, or unreadable
            gone = self._file is not None
            self._reset()
            return gone, []
        self._offset += len(data)
        self._before = (self._before + data)[-_REMEMBERED:]
        return other, self._lines(data)

    def _lines(self, data: bytes) -> list[bytes]:
        *whole, rest = (self._rest + data).split(b"\n")
        if whole and self._skipping:
            whole, self._skipping = whole[1:], False
        if len(rest) > LONGEST:
            rest, self._skipping = b"", True
        self._rest = b"" if self._skipping else rest
        return [line for line in whole if 0 < len(line) <= LONGEST]


@dataclass(frozen=True)
class Evaluation:
    """A line of metrics.jsonl, reduced to what is shown; None for what is missing or no number."""

    round: int
    metric: str | None  # one that is known
    quality: tuple[
        float | None, float | None, float | None
    ]  # mean, min, max over nodes; in per cent if a share
    consensus: float | None
    proven: float | None
    claimed: float | None
    bytes_sent: float | None
    seconds: float | None
    not_private: str | None  # why no ε covers quality and consensus
    links: Mapping[str, str] | None = None  # of a peer: the states of its links
    scored: int | None = None  # the number of nodes that quality is of, where that is a sample

    @classmethod
    def of_row(cls, row: Any) -> Evaluation | None:
        done = count(_table(row).get("round"))
        if done is None or not isinstance(row.get("not_private", {}), dict):
            return None
        figures = judged(row)
        metric = headline(figures)
        metric = metric if isinstance(metric, str) and known(metric) else None
        scale = 100.0 if metric and in_per_cent(metric) else 1.0
        mean, low, high = (number(figures.get(f"{metric}_{key}")) for key in ("mean", "min", "max"))
        reason = no_epsilon_covers(row)
        if reason is None and "hold_out" in figures:
            reason = f"the hold-out is {text(figures['hold_out'])}"
        return cls(
            round=done,
            metric=metric,
            quality=(_scaled(mean, scale), _scaled(low, scale), _scaled(high, scale)),
            consensus=number(figures.get("consensus_distance")),
            proven=number(figures.get("epsilon_proven")),
            claimed=number(figures.get("epsilon_claimed")),
            bytes_sent=number(figures.get("bytes_sent")),
            seconds=number(figures.get("seconds")),
            not_private=None if reason is None else text(reason, "they come from private records"),
            links=_links(row.get("links")),
            scored=len(sample) if isinstance(sample := figures.get(SCORED), list) else None,
        )

    def __str__(self) -> str:
        mean, low, high = ("—" if value is None else f"{value:.4g}" for value in self.quality)
        spread = f"min {low}, mean {mean}, max {high}" if self.links is None else mean
        parts = (
            f"round {self.round:,}",
            f"{unit(self.metric)} {spread}" if self.metric is not None else "",
            f"consensus {self.consensus:.4g}" if self.consensus is not None else "",
            "not private" if self.not_private else "",
            f"{size_text(self.bytes_sent)} sent" if self.bytes_sent is not None else "",
            f"{self.seconds:,.1f} s" if self.seconds is not None else "",
        )
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class View:
    """A run at one moment, as the templates ask for it."""

    name: str
    rounds: int | None
    facts: tuple[str, ...]  # method, mode, runtime
    stamp: str | None
    budgets: tuple[float, ...]  # ε asked for; several where nodes differ
    asked_of: str  # the figure that must stay below it: "proven", or "claimed" in paper mode
    terms: tuple[str, ...]  # δ, adjacency, unit, observer, in words
    evaluations: tuple[Evaluation, ...]
    draws: tuple[int, ...]  # on file, by ledger
    certificate: Mapping[str, Any] | None
    topology: Mapping[str, Any] | None
    site: str | None  # of a peer's directory: its own name
    links: Mapping[str, str] | None  # of a peer: the other sites, up, suspect or down
    written: str | None  # when anything was last written

    @property
    def last(self) -> Evaluation | None:
        return self.evaluations[-1] if self.evaluations else None

    @property
    def done(self) -> int:
        return self.last.round if self.last else 0

    @property
    def not_private(self) -> str | None:
        return next((one.not_private for one in reversed(self.evaluations) if one.not_private), None)

    def stated(self, key: str) -> str:
        """A text of the certificate."""
        return text((self.certificate or {}).get(key))

    @property
    def violated(self) -> list[str]:
        found = (self.certificate or {}).get("violated")
        return [text(one) for one in found[:5]] if isinstance(found, list) else []

    @property
    def epsilons(self) -> tuple[float | None, float | None, float | None]:
        """Proven, claimed, audited: the certificate's once there is one, the last evaluation's before."""
        if self.certificate is not None:
            keys = ("epsilon_proven", "epsilon_claimed", "epsilon_audited")
            proven, claimed, audited = (number(self.certificate.get(key)) for key in keys)
            return proven, claimed, audited
        return (self.last.proven, self.last.claimed, None) if self.last else (None, None, None)

    @property
    def share_spent(self) -> float | None:
        """Per cent of the one ε that was asked for, never rounded up."""
        proven, claimed, _ = self.epsilons
        spent, budget = (
            {"proven": proven, "claimed": claimed}[self.asked_of],
            self.budgets[0] if self.budgets else 0,
        )
        if spent is None or not 0 < spent <= 1000 * budget:
            return None
        return math.floor(1000 * spent / budget) / 10

    @property
    def metric(self) -> str | None:
        return next((one.metric for one in reversed(self.evaluations) if one.metric), None)

    @property
    def metric_title(self) -> str:
        name = unit(str(self.metric))
        return name[0].upper() + name[1:]

    @property
    def last_quality(self) -> tuple[float | None, float | None, float | None, str]:
        last = next(one for one in reversed(self.evaluations) if one.metric == self.metric)
        return *last.quality, "nodes" if last.scored is None else f"{last.scored:,} nodes drawn by the seed"

    @property
    def distance(self) -> float | None:
        return next((one.consensus for one in reversed(self.evaluations) if one.consensus is not None), None)

    def quality_plot(self) -> Plot:
        """The mean over nodes, with a band from the worst to the best; a site has its own model alone."""
        rows = [one for one in self.evaluations if one.metric == self.metric and one.quality[0] is not None]
        spread = [
            (low, high)
            for _, low, high in (one.quality for one in rows)
            if low is not None and high is not None
        ]
        banded = self.links is None and len(spread) == len(rows)
        name = (
            "mean over nodes; band: min to max"
            if banded
            else "mean"
            if self.links is None
            else "this site's model"
        )
        line = Series(name, _points(rows, lambda one: one.quality[0]), spread if banded else (), band=True)
        return Plot([line], Axis("round", whole=True), Axis(unit(str(self.metric))))

    def consensus_plot(self) -> Plot:
        line = Series("distance", _points(self.evaluations, lambda one: one.consensus))
        return Plot([line], Axis("round", whole=True), Axis("distance", low=0.0), legend=False)

    def epsilon_plot(self) -> Plot:
        lines = [
            Series("proven", _points(self.evaluations, lambda one: one.proven)),
            Series("claimed", _points(self.evaluations, lambda one: one.claimed), dash=DASH),
        ]
        series = [
            Series(line.name, [(0.0, 0.0), *line.points], dash=line.dash) for line in lines if line.points
        ]
        levels = [(budget, f"asked for: {budget:.4g}") for budget in self.budgets[:3]]
        x = Axis("round", low=0, high=max(self.done, self.rounds or 0), whole=True)
        return Plot(series, x, Axis("ε", low=0.0), levels=levels)

    def graph(self) -> tuple[str, Markup]:
        """Who sends to whom; of a peer, the states of its links to the other sites."""
        if self.links is None:
            if self.topology is None:
                return "No topology is on file yet.", Markup()
            return charts.topology(self.topology, self.done)
        names = sorted(self.links)[:_MOST_LINKS]
        links = []
        for state, (colour, dash, sign) in STATES.items():
            pairs = [(0, i) for i, name in enumerate(names, 1) if self.links[name] == state]
            total = sum(1 for one in self.links.values() if one == state)
            links.append(Links(f"{state} ({total})", pairs, colour, dash=dash, sign=sign))
        words = ", ".join(f"{list(self.links.values()).count(state)} {state}" for state in STATES)
        more = f" The first {_MOST_LINKS} are drawn." if len(self.links) > _MOST_LINKS else ""
        places = [(0.0, 0.0), *charts.ring(len(names))]
        site = self.site or "this site"
        return f"{words}.{more}", charts.graph(places, links, [site, *names], f"Links of {site}: {words}")

    @property
    def traffic(self) -> Iterator[tuple[str, str]]:
        last = self.last
        if last is not None and last.bytes_sent is not None:
            yield f"sent by {'all nodes' if self.links is None else 'this site'}", size_text(last.bytes_sent)
            if last.round:
                yield "a round", size_text(last.bytes_sent / last.round)
        if last is not None and last.seconds is not None:
            yield "time in rounds", f"{last.seconds:,.1f} s"
        if self.draws:
            low, high, ledgers = max(0, min(self.draws)), max(0, *self.draws), len(self.draws)
            each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            yield (
                "draws on file",
                f"{each} in {'each of ' * (ledgers > 1)}{ledgers} ledger{'s' * (ledgers > 1)}",
            )

    @property
    def log(self) -> list[str]:
        return [str(one) for one in reversed(self.evaluations[-LAST_LINES:])]


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value


def _points(rows: Any, value: Callable[[Evaluation], float | None]) -> list[tuple[float, float]]:
    return [(float(one.round), y) for one in rows if (y := value(one)) is not None]


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
        self._evaluations: list[Evaluation] = []
        self._ledgers: dict[str, _Ledger] = {}
        self._whole: dict[str, tuple[object, Any]] = {}

    def look(self) -> View:
        other, lines = self._metrics.look()
        if other:  # a run that resumed from a checkpoint has trimmed them
            self._evaluations = []
        for line in lines:
            self._add(line)
        self._look_at_ledgers()
        ledgers = [ledger for _, ledger in sorted(self._ledgers.items())]
        manifest, config = _table(self._read("manifest.json")), _table(self._read("config.toml"))
        certificate, topology, sites = (
            self._read(f"{name}.json") for name in ("certificate", "topology", "links")
        )
        header = next((ledger.header for ledger in ledgers if ledger.header), {})
        noise = text(manifest.get("noise"), header.get("noise"), "system")
        links = _links(sites) or (self._evaluations[-1].links if self._evaluations else None)
        planned_for = next((ledger.observer for ledger in ledgers if ledger.observer), "")
        return View(
            name=text(manifest.get("name"), config.get("name"), self._path.name),
            rounds=count(config.get("rounds")),
            facts=tuple(_facts(config, peer=links is not None)),
            stamp=None if noise == "system" else noise,
            budgets=tuple(_budgets(config)),
            asked_of="claimed" if config.get("mode") == "paper" else "proven",
            terms=tuple(_terms(_table(certificate), header, config, planned_for)),
            evaluations=tuple(self._evaluations),
            draws=tuple(ledger.draws for ledger in ledgers),
            certificate=certificate if isinstance(certificate, dict) else None,
            topology=topology if isinstance(topology, dict) else None,
            site=text(manifest.get("site"), config.get("site"), _table(sites).get("site"), "") or None,
            links=links,
            written=self._written(),
        )

    def _add(self, line: bytes) -> None:
        """An evaluation more; of too many every second one goes, but for the last ones."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        new, rows = Evaluation.of_row(row), self._evaluations
        if new is None or (rows and new.round <= rows[-1].round):
            return
        rows.append(new)
        if len(rows) > MOST_POINTS:
            self._evaluations = [*rows[:-LAST_LINES:2], *rows[-LAST_LINES:]]

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
        """A whole file as JSON or TOML, again only when it has changed; None where it is missing or damaged."""
        path = self._path / name
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            self._whole.pop(name, None)
            return None
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        before, content = self._whole.get(name, (None, None))
        if mark != before:
            content = None
            with suppress(UserError, ValueError, RecursionError):
                data = read_bytes(path, LARGEST).decode()
                content = tomllib.loads(data) if name.endswith(".toml") else json.loads(data)
            self._whole[name] = (mark, content)
        return content

    def _written(self) -> str | None:
        names = ("metrics.jsonl", "certificate.json", "links.json", *self._ledgers)
        times = []
        for name in names:
            with suppress(OSError):
                times.append(os.stat(self._path / name).st_mtime)
        latest = min(max(times), time.time()) if times else None
        return None if latest is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(latest))


@dataclass
class _Ledger:
    """How many draws are on file, and what the header and the first draw say of them."""

    path: Path
    draws: int = -1
    header: Mapping[str, Any] = field(default_factory=dict)
    observer: str = ""

    def __post_init__(self) -> None:
        self._follower, self._first = Follower(self.path), list[bytes]()

    def look(self) -> None:
        other, lines = self._follower.look()
        if other:
            self.draws, self.header, self.observer, self._first = -1, {}, "", []
        self.draws += len(lines)
        if len(self._first) < 2 and lines:
            self._first = [*self._first, *lines][:2]
            self._read_first()

    def _read_first(self) -> None:
        try:
            data = b"\n".join(self._first) + b"\n"
            ledger = parse_ledger(self.path, data, lenient=True)
            self.header, events = ledger.header, [event for line in ledger.lines for event in line.events]
            if events:
                self.observer = against_all(event.release.planned_for for event in events).description
        except (UserError, *_DAMAGED):
            self.header = {}


def _terms(
    certificate: Mapping[str, Any], header: Mapping[str, Any], config: Mapping[str, Any], planned_for: str
) -> Iterator[str]:
    """The terms of ε; what a running run has not yet written is named as unknown."""
    privacy = {**_table(config.get("privacy")), "unit": None}  # there it is a word or a table, not a sentence
    sources = (certificate, header, privacy)
    delta = next((value for one in sources if (value := number(one.get("delta"))) is not None), None)
    yield f"δ = {delta:g}" if delta is not None else "δ: not yet on file"
    yield text(*(one.get("adjacency") for one in sources), "not yet on file")
    yield f"unit: {text(*(one.get('unit') for one in sources), 'not yet on file')}"
    yield f"observer: {text(certificate.get('observer'), planned_for, 'as planned; the certificate will name it')}"


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


def _budgets(config: Mapping[str, Any]) -> list[float]:
    if config.get("baseline") == "non-private":
        return []
    asked = _table(config.get("privacy")).get("epsilon")
    asked = asked[:10_000] if isinstance(asked, list) else [asked]
    return sorted({value for one in asked if (value := number(one)) is not None})


def _links(content: Any) -> dict[str, str] | None:
    """{site: state}, or {site: {"state": state}}; an unknown state is left out."""
    if not isinstance(content, dict):
        return None
    content = _table(content.get("links")) or content
    states = (
        (text(site, "?"), text(one, _table(one).get("state"))) for site, one in list(content.items())[:1000]
    )
    return {site: state for site, state in states if state in STATES}


def sections(view: View) -> dict[str, str]:
    """Each part of the page by the name of its element; one that a damaged file spoils does not spoil the others."""
    from jinja2 import TemplateError

    macros: Any = environment().get_template("_live.html.j2", globals={"seeded": SEEDED}).module
    parts = {}
    for name in SECTIONS:
        try:
            parts[name] = getattr(macros, name)(view)
        except (TemplateError, *_DAMAGED) as error:
            parts[name] = macros.failed(type(error).__name__)
    return parts


def page(parts: Mapping[str, str], nonce: str) -> str:
    return render("live", parts=parts, nonce=nonce)


class Feed:
    """The sections as they are now; one look at the directory serves all pages that are open."""

    def __init__(self, run: WatchedRun, clock: Callable[[], float] = time.monotonic):
        self._run, self._clock, self._lock = run, clock, threading.Lock()
        self._looked, self._parts = -1e9, dict[str, str]()

    def now(self) -> dict[str, str]:
        with self._lock:
            if self._clock() - self._looked >= LOOK_EVERY:
                self._parts = sections(self._run.look())
                self._looked = self._clock()
            return self._parts


class LiveServer(ThreadingHTTPServer):
    daemon_threads = True  # Ctrl-C waits for nobody
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, run: WatchedRun, port: int = 0):
        self.token, self.feed = secrets.token_urlsafe(24), Feed(run)
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((LOOPBACK, port), Handler)
        self.port = int(self.server_address[1])
        self.hosts = (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news; what is wrong with us is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "gossamer", ""
    timeout = 10.0  # of one read or write: a page that takes nothing is let go

    def setup(self) -> None:
        super().setup()
        self._patience = threading.Timer(REQUEST_SECONDS, self._end)
        self._patience.daemon = True
        self._patience.start()

    def finish(self) -> None:
        self._patience.cancel()
        super().finish()

    def _end(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._patience.cancel()
        try:
            where = urlsplit(self.path)
        except ValueError:
            self._answer(400, "This is no address.")
            return
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self._answer(403, "This page answers to its own address only.")
        elif not self._has_token(where.query):
            self._answer(403, "The address must hold the token that `gossamer watch` printed.")
        elif where.path == "/":
            nonce = secrets.token_urlsafe(16)
            self._answer(200, page(self.server.feed.now(), nonce), nonce)
        elif where.path == "/events":
            self._events()
        else:
            self._answer(404, "There is one page here: /")

    def _has_token(self, query: str) -> bool:
        given = parse_qs(query, max_num_fields=8).get("token", []) if query.count("&") < 8 else []
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self.server.token.encode())

    def _answer(self, status: int, content: str, nonce: str | None = None) -> None:
        body = content.encode("utf-8", "replace")
        self.send_response(status)
        self._guards(nonce)
        self.send_header("Content-Type", f"text/{'html' if nonce else 'plain'}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _guards(self, nonce: str | None = None) -> None:
        own = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; " if nonce else ""
        policy = f"default-src 'none'; {own}img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        for name, value in (
            ("Content-Security-Policy", policy),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ):
            self.send_header(name, value)

    def _events(self) -> None:
        """All sections at first, then those that changed; a beat now and then shows who has gone."""
        self.send_response(200)
        self._guards()
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        sent: dict[str, str] = {}
        beat = time.monotonic()
        while True:
            parts = self.server.feed.now()
            new = {name: content for name, content in parts.items() if sent.get(name) != content}
            if new:
                self.wfile.write(f"data: {json.dumps(new)}\n\n".encode())
            elif time.monotonic() - beat > BEAT_EVERY:
                self.wfile.write(b": still here\n\n")
            if new or time.monotonic() - beat > BEAT_EVERY:
                self.wfile.flush()
                beat = time.monotonic()
            sent = parts
            time.sleep(LOOK_EVERY)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is the user's; an address with a token belongs into no log."""


def watch(path: Path, *, port: int = 0, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve a run's page until Ctrl-C; `port` 0 takes one that is free."""
    if not 0 <= port < 65536:
        raise UserError(f"--port {port} is no port; give one from 1 to 65535, or none for one that is free.")
    run = WatchedRun(path)
    try:
        server = LiveServer(run, port)
    except OSError as error:
        raise UserError(
            f"--port {port} cannot be used: {error.strerror}; name another, or none for one that is free."
        ) from None
    with server:
        say(
            f"{path} is shown at {server.url}\nto this machine only, to who has this address; Ctrl-C ends it."
        )
        opened = _open(server.url) if browser else None
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return
        finally:
            if opened is not None:
                opened.unlink(missing_ok=True)


def _open(url: str) -> Path | None:
    """In the user's browser, by a file of the user's alone: other users can read the arguments of a command."""
    import webbrowser

    if sys.platform.startswith("linux") and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        return None  # only a browser of the terminal would be found, and it would take the terminal
    handle, name = tempfile.mkstemp(prefix="gossamer-watch-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={url}">\n')
    with suppress(webbrowser.Error):
        webbrowser.open(Path(name).as_uri())
    return Path(name)
