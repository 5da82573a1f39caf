"""`gossamer watch`: a page about a run, finished or not, that follows its files, served to this machine alone.

The page shows the figures of the report and the lines of the terminal. Its files may be anyone's: a file that is no
run's is named on the page, and every value is escaped. The server answers on loopback, to its own name, to requests
with the token. The token is in the address and in no cookie: a browser sends the cookies of 127.0.0.1 to every port
there, and so to servers of other users of the machine.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gossamer.errors import UserError
from gossamer.results.certificate import PLAN
from gossamer.results.console import row_text
from gossamer.results.pages import environment, render
from gossamer.results.report import Run, figures, read_run
from gossamer.results.rundir import read_object
from gossamer.results.verify import malformed_as_user_error

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
SECTIONS = ("head", "privacy", "plots", "log")
LINKS = "links.json"  # of a site: the states of its links
SIGNS = {"up": "✓", "suspect": "?", "down": "✕"}
_FILES = (
    "config.toml", "manifest.json", PLAN, "topology.json", "metrics.jsonl", "certificate.json", LINKS,
)  # fmt: skip
_LAST_ROWS = 12


class LiveRun:
    """The sections of a run's page, rendered again when one of its files has changed."""

    def __init__(self, path: Path):
        if not (path / "config.toml").exists() and (path / "run" / "config.toml").exists():
            path = path / "run"  # the folder of a site's study
        read_run(path)  # what is no run directory is refused
        self._path, self._lock = path, threading.Lock()
        self._marks: list[object] = []
        self._sections: dict[str, str] = {}

    def sections(self) -> dict[str, str]:
        with self._lock:
            marks = [_mark(self._path / name) for name in _FILES]
            if marks != self._marks:
                self._sections, self._marks = dict(self._rendered()), marks
            return self._sections

    def _rendered(self) -> Iterator[tuple[str, str]]:
        from jinja2 import TemplateError

        macros: Any = environment().get_template("_live.html.j2").module
        for name in SECTIONS:
            try:
                with malformed_as_user_error(self._path):
                    yield name, getattr(macros, name)(**_view(name, read_run(self._path)))
            except (UserError, TemplateError) as error:
                yield name, macros.failed(error)


def _mark(path: Path) -> object:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _view(name: str, run: Run) -> dict[str, Any]:
    """Return the values of a section."""
    if name == "plots":
        return {"figures": figures([run])}
    if name == "log":
        return {"lines": [row_text(row) for row in reversed(run.metrics[-_LAST_ROWS:])]}
    links = read_object(run.path / LINKS).get("links", {}) if (run.path / LINKS).exists() else None
    if name == "head":
        states = None if links is None else [(SIGNS[state], site, state) for site, state in links.items()]
        return {"run": run, "links": states}
    spends = "claimed" if run.config["mode"] == "paper" else "proven"
    stated = run.stated or run.last
    spent = stated.get(f"epsilon_{spends}")
    share = None
    if spent is not None and len(run.budgets) == 1:
        share = math.floor(1000 * spent / run.budgets[0]) / 10  # never rounded up
    return {"run": run, "c": stated, "spends": spends, "share": share, "site": links is not None}


class LiveServer(ThreadingHTTPServer):
    daemon_threads = True  # Ctrl-C waits for no page
    block_on_close = False
    request_queue_size = 16

    def __init__(self, run: LiveRun, port: int = 0):
        self.token, self.run = secrets.token_urlsafe(24), run
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((LOOPBACK, port), Handler)
        self.port = int(self.server_address[1])
        self.hosts = (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report our own errors, not those of a browser that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "gossamer", ""
    timeout = 5.0  # seconds of silence, after which a connection is closed

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
        except ValueError:
            self._answer(400, "This is not an address.")
            return
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self._answer(403, "This page answers to its own address only.")
        elif not self._has_token(address.query):
            self._answer(403, "The address must hold the token that `gossamer watch` printed.")
        elif address.path == "/":
            nonce = secrets.token_urlsafe(16)
            self._answer(200, render("live", parts=self.server.run.sections(), nonce=nonce), "html", nonce)
        elif address.path == "/sections":
            self._answer(200, json.dumps(self.server.run.sections()), "json")
        else:
            self._answer(404, "There is one page here: /")

    def _has_token(self, query: str) -> bool:
        tokens = parse_qs(query, max_num_fields=8).get("token", []) if query.count("&") < 8 else []
        return len(tokens) == 1 and hmac.compare_digest(tokens[0].encode(), self.server.token.encode())

    def _answer(self, status: int, content: str, kind: str = "plain", nonce: str | None = None) -> None:
        body = content.encode("utf-8", "replace")
        own = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; " if nonce else ""
        policy = f"default-src 'none'; {own}img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self.send_response(status)
        for name, value in (
            ("Content-Security-Policy", policy),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Content-Type", f"{'application' if kind == 'json' else 'text'}/{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: an address with a token belongs in no log."""


def watch(path: Path, *, port: int = 0, say: Callable[[str], None] = print) -> None:
    """Serve a run's page until Ctrl-C; `port` 0 takes one that is free."""
    if not 0 <= port < 65536:
        raise UserError(f"--port {port} is not a port; give one from 1 to 65535, or none for a free one.")
    run = LiveRun(path)
    try:
        server = LiveServer(run, port)
    except OSError as error:
        raise UserError(f"--port {port} cannot be used: {error.strerror}; name another, or none.") from None
    with server, suppress(KeyboardInterrupt):
        say(f"{path} is shown at {server.url}\nto this machine only, with this address; Ctrl-C ends it.")
        server.serve_forever(poll_interval=0.2)
