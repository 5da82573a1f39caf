"""The live page's server: this machine only, for who has the token, in answer to its own name only.

The token stands in the address and in no cookie: a browser sends the cookies of 127.0.0.1 to every port there, and so
to servers of other users of the machine.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gossamer.errors import UserError
from gossamer.results.live.page import page, sections
from gossamer.results.live.watched import WatchedRun

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
REQUEST_SECONDS = 5.0  # for all of a request, however slowly it comes
_LOOK_EVERY, _BEAT_EVERY = 0.5, 10.0  # seconds


class Feed:
    """The sections as they are now; one look at the directory serves all pages that are open."""

    def __init__(self, run: WatchedRun, clock: Callable[[], float] = time.monotonic):
        self._run, self._clock, self._lock = run, clock, threading.Lock()
        self._looked, self._parts = -1e9, dict[str, str]()

    def now(self) -> dict[str, str]:
        with self._lock:
            if self._clock() - self._looked >= _LOOK_EVERY:
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
            elif time.monotonic() - beat > _BEAT_EVERY:
                self.wfile.write(b": still here\n\n")
            if new or time.monotonic() - beat > _BEAT_EVERY:
                self.wfile.flush()
                beat = time.monotonic()
            sent = parts
            time.sleep(_LOOK_EVERY)

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
