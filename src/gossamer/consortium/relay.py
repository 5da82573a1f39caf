"""A relay for sites that cannot listen: it splices TCP connections, and TLS stays between the two sites.

The relay has a front port for each such site (the address in the roster) and one back port for the sites themselves. A
site's `Agent` dials the back, proves that it has the site's token, and keeps a few connections waiting there. A caller
at the front is spliced to one of them, and by the agent to the site's own listener on its loopback. The relay holds no
certificate and sees what anybody on the way sees: who speaks to whom, when and how much.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gossamer.consortium import files
from gossamer.consortium.event_loop import LOG, RepeatFilter, count_resets, run
from gossamer.errors import UserError

SECRET_FILE = "GOSSAMER_SECRET_FILE"
_GREETING, _NONCE, _TAG, _MAX_NAME = b"gossamer relay 1", 32, 32, 255  # bytes
_WAIT, _CALLED, _HERE = b".", b"!", b"+"
_PIECE = 1 << 16  # bytes under way in each direction of a splice
_WAITING = 4  # idle connections of a site
_FAILURES = (OSError, EOFError, TimeoutError)  # of the network, all of them ordinary


@dataclass(frozen=True)
class Limits:
    splices: int = 64  # of one site at once, including those that still wait for it
    unproven: int = 32  # connections at the back that have not shown a token yet
    patience: float = 5.0  # seconds for a proof, for a site, for its answer
    beat: float = 10.0  # seconds between two signs of life to an idle connection
    idle: float = 60.0  # seconds without a byte after which a splice is closed


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Answer = Callable[[Connection], Awaitable[None]]


def read_secret() -> str:
    """Read the relay's secret from the file that GOSSAMER_SECRET_FILE names."""
    name = os.environ.get(SECRET_FILE)
    if not name:
        raise UserError(f"{SECRET_FILE} is not set: it names the file with the relay's secret.")
    secret = files.read_private(Path(name)).decode(errors="replace").strip()
    if len(secret) < 32:
        raise UserError(
            f"the secret in {SECRET_FILE} = {name} has {len(secret)} characters, but 32 are needed; "
            "`openssl rand -hex 32` makes one."
        )
    return secret


def token(secret: str, site: str) -> str:
    """Return what the relay's operator gives to a site; another site cannot use it."""
    return hmac.digest(secret.encode(), b"token of a site at a relay\n" + site.encode(), "sha256").hex()


def relay(secret: str, back: str, fronts: Mapping[str, str], limits: Limits | None = None) -> None:
    """Serve until interrupted. `fronts`: for each site the host:port at which others reach it."""

    async def serve() -> None:
        count_resets(asyncio.get_running_loop())
        async with Relay(secret, back, fronts, limits).serve():
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


@dataclass(eq=False)
class _Idle:
    """A connection of a site that waits for a caller."""

    connection: Connection
    called: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)


class _Site:
    def __init__(self) -> None:
        self.idle: list[_Idle] = []
        self.more = asyncio.Event()
        self.splices = 0


class Relay:
    def __init__(self, secret: str, back: str, fronts: Mapping[str, str], limits: Limits | None = None):
        self._secret, self._back, self._fronts = secret, back, dict(fronts)
        self._limits, self._log = limits or Limits(), RepeatFilter()
        self._sites = {name: _Site() for name in fronts}
        self._unproven = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.back_port = 0
        self.ports: dict[str, int] = {}  # of the fronts

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Relay]:
        def answer_at(name: str) -> Answer:
            return lambda caller: self._answer_caller(name, caller)

        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._end)
            self.back_port = await self._listen(stack, "back", self._back, self._answer_site)
            for name, address in self._fronts.items():
                self.ports[name] = await self._listen(stack, name, address, answer_at(name))
            yield self

    async def _listen(self, stack: contextlib.AsyncExitStack, what: str, address: str, answer: Answer) -> int:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await answer(Connection(reader, writer))
            except (*_FAILURES, asyncio.CancelledError):  # asyncio would write a traceback of the latter
                pass
            finally:
                self._tasks.discard(task)
                writer.transport.abort()

        host, port = _split(what, address)
        try:
            server = await asyncio.start_server(guarded, host, port, limit=_PIECE)
        except OSError as error:
            raise UserError(f"{what} = {address!r} cannot be used: {error.strerror or error}.") from None
        stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer_site(self, connection: Connection) -> None:
        if self._unproven >= self._limits.unproven:
            return
        self._unproven += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                site = await self._proven_site(connection)
        finally:
            self._unproven -= 1
        if site is None:
            self._log.warn("refused a connection at the back: it shows no site's token.")
            return
        idle = _Idle(connection)
        site.idle.append(idle)
        site.more.set()
        if len(site.idle) > _WAITING:
            oldest = site.idle.pop(0)  # likely dead
            oldest.called.set()
            oldest.finished.set()
        try:
            await self._wait_for_caller(idle)
        finally:
            if idle in site.idle:
                site.idle.remove(idle)
        await idle.finished.wait()

    async def _proven_site(self, connection: Connection) -> _Site | None:
        nonce = secrets.token_bytes(_NONCE)
        connection.writer.write(_GREETING + nonce)
        name = await connection.reader.readexactly((await connection.reader.readexactly(1))[0])
        tag = await connection.reader.readexactly(_TAG)
        site = name.decode(errors="replace")
        if not hmac.compare_digest(proof(token(self._secret, site), nonce, name), tag):
            return None
        return self._sites.get(site)

    async def _wait_for_caller(self, idle: _Idle) -> None:
        """Send signs of life until a caller comes; raise if the site goes first."""
        called = asyncio.create_task(idle.called.wait())
        try:
            while not idle.called.is_set():
                idle.connection.writer.write(_WAIT)
                await idle.connection.writer.drain()
                await asyncio.wait({called}, timeout=self._limits.beat)
                if idle.connection.reader.at_eof():
                    raise EOFError
        finally:
            called.cancel()

    async def _answer_caller(self, name: str, caller: Connection) -> None:
        site = self._sites[name]
        if site.splices >= self._limits.splices:
            self._log.warn(f"refused a connection to {name!r}: it has {site.splices} already.")
            return
        site.splices += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                idle = await self._call(site)
            try:
                await splice(caller, idle.connection, self._limits.idle)
            finally:
                idle.finished.set()
        except TimeoutError:
            self._log.warn(f"refused a connection to {name!r}: the site is not here.")
        finally:
            site.splices -= 1

    async def _call(self, site: _Site) -> _Idle:
        """Return a waiting connection of the site that answers, trying the newest first."""
        while True:
            while not site.idle:
                site.more.clear()
                await site.more.wait()
            idle = site.idle.pop()
            idle.called.set()
            answered = False
            try:
                idle.connection.writer.write(_CALLED)
                async with asyncio.timeout(self._limits.patience / 4):
                    answered = await idle.connection.reader.readexactly(1) == _HERE
            except _FAILURES:
                pass
            finally:
                if not answered:
                    idle.finished.set()
            if answered:
                return idle


class Agent:
    """At a site: waits at a relay and hands callers to the listener on this machine's `port`. `close` when done."""

    def __init__(self, relay: str, site: str, token: str, port: int, limits: Limits | None = None):
        self._relay, self._site, self._port = _split("relay", relay), site.encode(), port
        if not 0 < len(self._site) <= _MAX_NAME:
            raise UserError(f"site = {site!r} must have 1 … {_MAX_NAME} bytes.")
        proof(token, b"", b"")  # refuses a token that is not hexadecimal
        self._token, self._limits, self._log = token, limits or Limits(), RepeatFilter()
        self._splices: set[asyncio.Task[None]] = set()
        self._waiting: list[asyncio.Task[None]] = run(self._start(), seconds=10)

    def close(self) -> None:
        run(self._close(), seconds=10)

    async def _start(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._keep_waiting()) for _ in range(_WAITING // 2)]

    async def _close(self) -> None:
        for tasks in (self._waiting, list(self._splices)):  # in this order: those that wait begin splices
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_waiting(self) -> None:
        """Keep one connection waiting at the relay; each that is called becomes a splice."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            try:
                connection = await self._wait_for_call()
            except _FAILURES as error:
                self._log.warn(f"no connection to the relay: {error or type(error).__name__}.")
                pause = min(max(2 * pause, 0.1), 5.0)
                continue
            pause = 0.0
            task = asyncio.create_task(self._hand_on(connection))
            self._splices.add(task)
            task.add_done_callback(self._splices.discard)

    async def _wait_for_call(self) -> Connection:
        async with asyncio.timeout(self._limits.patience):
            reader, writer = await asyncio.open_connection(*self._relay, limit=_PIECE)
        try:
            async with asyncio.timeout(self._limits.patience):
                if await reader.readexactly(len(_GREETING)) != _GREETING:
                    raise EOFError("what answers there is not a relay of gossamer")
                nonce = await reader.readexactly(_NONCE)
            writer.write(bytes([len(self._site)]) + self._site + proof(self._token, nonce, self._site))
            sign = _WAIT
            while sign == _WAIT:
                async with asyncio.timeout(3 * self._limits.beat):
                    sign = await reader.read(1)
            if sign != _CALLED:
                raise EOFError("it does not take this site's token, has no front for it, or has ended")
        except BaseException:
            writer.transport.abort()
            raise
        return Connection(reader, writer)

    async def _hand_on(self, caller: Connection) -> None:
        try:
            near = Connection(*await asyncio.open_connection("127.0.0.1", self._port, limit=_PIECE))
            caller.writer.write(_HERE)
            await splice(caller, near, self._limits.idle)
        except _FAILURES as error:
            LOG.debug("a caller from the relay is gone: %s", error)
        finally:
            caller.writer.transport.abort()


async def splice(one: Connection, other: Connection, idle: float) -> None:
    """Pass bytes both ways until both have ended, one has failed, or nothing came for `idle` seconds. Closes both."""
    heard = time.monotonic()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        while data := await reader.read(_PIECE):
            heard = time.monotonic()
            writer.write(data)
            await writer.drain()  # a sender that is faster than the receiver waits here
        with contextlib.suppress(OSError):
            writer.write_eof()

    pumps = {
        asyncio.create_task(pump(one.reader, other.writer)),
        asyncio.create_task(pump(other.reader, one.writer)),
    }
    running = pumps
    try:
        while running and (rest := heard + idle - time.monotonic()) > 0:
            done, running = await asyncio.wait(running, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() is not None for task in done):
                break
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for connection in (one, other):
            connection.writer.transport.abort() if running else connection.writer.close()
    with contextlib.suppress(*_FAILURES):  # what an orderly end has left in the buffers goes out first
        async with asyncio.timeout(idle):
            await asyncio.gather(one.writer.wait_closed(), other.writer.wait_closed())


def proof(token: str, nonce: bytes, site: bytes) -> bytes:
    """Prove that one has a site's token."""
    try:
        return hmac.digest(bytes.fromhex(token), nonce + site, "sha256")
    except ValueError:
        raise UserError(
            "the token for the relay is not hexadecimal; ask the relay's operator for it."
        ) from None


def _split(what: str, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{what} = {address!r} must be host:port.")
    return host.strip("[]"), int(port)
