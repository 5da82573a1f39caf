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
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from gossamer.consortium.links import LOG, LogLimit, log_broken_connections, run
from gossamer.errors import UserError
from gossamer.results.rundir import read_private

SECRET_FILE = "GOSSAMER_SECRET_FILE"
_GREETING, _NONCE, _TAG = b"gossamer relay 2", 32, 32  # bytes
_CALLED, _HERE = b"!", b"+"
_PIECE = 1 << 16  # bytes under way in each direction of a splice
_WAITING = 4  # idle connections of a site
_FAILURES = (OSError, EOFError, TimeoutError)  # of the network, all of them ordinary


@dataclass(frozen=True)
class Limits:
    splices: int = 64  # of one site at once, including those that still wait for it
    unproven: int = 32  # connections at the back that have not shown a token yet
    patience: float = 5.0  # seconds for a proof, for a site, for its answer
    idle: float = 60.0  # seconds without a byte after which a splice is closed


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Answer = Callable[[Connection], Awaitable[bool]]  # True: the connection waits, and stays open


def read_secret() -> str:
    """Read the relay's secret from the file that GOSSAMER_SECRET_FILE names."""
    name = os.environ.get(SECRET_FILE)
    if not name:
        raise UserError(f"{SECRET_FILE} is not set; set it to the file with the relay's secret.")
    secret = read_private(Path(name)).decode(errors="replace").strip()
    if len(secret) < 32:
        raise UserError(f"{SECRET_FILE} = {name}: fewer than 32 characters; `openssl rand -hex 32` makes it.")
    return secret


def token(secret: str, site: str) -> str:
    """Return what the relay's operator gives to a site; another site cannot use it."""
    return hmac.digest(secret.encode(), b"token of a site at a relay\n" + site.encode(), "sha256").hex()


def relay(secret: str, back: str, fronts: Mapping[str, str], limits: Limits | None = None) -> None:
    """Serve until interrupted. `fronts`: for each site the host:port at which others reach it."""

    async def serve() -> None:
        log_broken_connections(asyncio.get_running_loop())
        async with Relay(secret, back, fronts, limits).serve():
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


class Relay:
    def __init__(self, secret: str, back: str, fronts: Mapping[str, str], limits: Limits | None = None):
        self._secret, self._back, self._fronts = secret, back, dict(fronts)
        self._limits, self._log = limits or Limits(), LogLimit()
        self._waiting: dict[str, list[Connection]] = {name: [] for name in fronts}
        self._arrived = asyncio.Condition()  # another connection waits
        self._splices = dict.fromkeys(fronts, 0)
        self._unproven = 0
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.back_port = 0
        self.ports: dict[str, int] = {}  # of the fronts

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Relay]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._end)
            self.back_port = await self._listen(stack, "back", self._back, self._answer_site)
            for name, address in self._fronts.items():
                answer = partial(self._answer_caller, name)
                self.ports[name] = await self._listen(stack, name, address, answer)
            yield self

    async def _listen(self, stack: contextlib.AsyncExitStack, what: str, address: str, answer: Answer) -> int:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task, waits = asyncio.current_task(), False
            self._tasks.add(task)
            try:
                waits = await answer(Connection(reader, writer))
            except (*_FAILURES, asyncio.CancelledError):  # asyncio would write a traceback of the latter
                pass
            finally:
                self._tasks.discard(task)
                if not waits:
                    writer.transport.abort()

        host, port = _split(what, address)
        try:
            server = await asyncio.start_server(guarded, host, port, limit=_PIECE)
        except OSError as error:
            raise UserError(f"{what} = {address!r} cannot be used: {error.strerror or error}.") from None
        stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in chain.from_iterable(self._waiting.values()):
            connection.writer.transport.abort()

    async def _answer_site(self, connection: Connection) -> bool:
        if self._unproven >= self._limits.unproven:
            return False
        self._unproven += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                waiting = await self._proven_site(connection)
        finally:
            self._unproven -= 1
        if waiting is None:
            self._log.warn("refused a connection at the back: it shows no site's token.")
            return False
        async with self._arrived:
            waiting.append(connection)
            self._arrived.notify_all()
        if len(waiting) > _WAITING:
            waiting.pop(0).writer.transport.abort()  # likely dead
        return True

    async def _proven_site(self, connection: Connection) -> list[Connection] | None:
        nonce = secrets.token_bytes(_NONCE)
        connection.writer.write(_GREETING + nonce)
        name = await connection.reader.readexactly((await connection.reader.readexactly(1))[0])
        tag = await connection.reader.readexactly(_TAG)
        site = name.decode(errors="replace")
        is_proven = hmac.compare_digest(proof(token(self._secret, site), nonce, name), tag)
        return self._waiting.get(site) if is_proven else None

    async def _answer_caller(self, name: str, caller: Connection) -> bool:
        if self._splices[name] >= self._limits.splices:
            self._log.warn(f"refused a connection to {name!r}: it has {self._splices[name]} already.")
            return False
        self._splices[name] += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                called = await self._call(self._waiting[name])
            await splice(caller, called, self._limits.idle)
        except TimeoutError:
            self._log.warn(f"refused a connection to {name!r}: the site is not here.")
        finally:
            self._splices[name] -= 1
        return False

    async def _call(self, waiting: list[Connection]) -> Connection:
        """Return a waiting connection of the site that answers, trying the newest first."""
        while True:
            async with self._arrived:
                await self._arrived.wait_for(lambda: waiting)
            called, answered = waiting.pop(), False
            try:
                called.writer.write(_CALLED)
                async with asyncio.timeout(self._limits.patience / 4):
                    answered = await called.reader.readexactly(1) == _HERE
            except _FAILURES:
                pass
            finally:
                if not answered:
                    called.writer.transport.abort()
            if answered:
                return called


class Agent:
    """At a site: waits at a relay and hands callers to the listener on this machine's `port`. `close` when done."""

    def __init__(self, relay: str, site: str, token: str, port: int, limits: Limits | None = None):
        self._relay, self._site, self._port = _split("relay", relay), site.encode(), port
        proof(token, b"", b"")  # refuses a token that is not hexadecimal
        self._token, self._limits, self._log = token, limits or Limits(), LogLimit()
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
            _keep_alive(writer)
            if await reader.read(1) != _CALLED:
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


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the kernel find out, within 40 seconds, that the other end of a quiet connection is gone."""
    connected = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


async def splice(one: Connection, other: Connection, idle: float) -> None:
    """Pass bytes both ways until both ends have ended, one has failed or was silent for `idle` seconds. Closes both.

    Sites ping each other every few seconds, so that no direction is silent for long.
    """

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await asyncio.wait_for(reader.read(_PIECE), idle):
            writer.write(data)
            await asyncio.wait_for(writer.drain(), idle)  # a sender that is faster waits here
        writer.write_eof()

    writers = one.writer, other.writer
    try:
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(pump(one.reader, other.writer))
            pumps.create_task(pump(other.reader, one.writer))
        async with asyncio.timeout(idle):  # what an orderly end has left in the buffers goes out first
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers))
    except* _FAILURES:
        pass
    finally:
        for writer in writers:
            writer.transport.abort()


def proof(token: str, nonce: bytes, site: bytes) -> bytes:
    """Prove that one has a site's token."""
    try:
        return hmac.digest(bytes.fromhex(token), nonce + site, "sha256")
    except ValueError:
        raise UserError("the token for the relay is not hexadecimal; ask the relay's operator.") from None


def _split(what: str, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{what} = {address!r} must be host:port.")
    return host.strip("[]"), int(port)
